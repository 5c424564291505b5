"""An engine core whose adapter died must not live on: it holds memory, a port and other workers' time."""

import multiprocessing
import os
import threading
from multiprocessing.connection import wait
from typing import Final

_NAME: Final = "orphan-watch"


def die_with_parent() -> None:
    """End this process when the one that spawned it is gone, however it went; does nothing elsewhere."""
    parent = multiprocessing.parent_process()
    if parent is None or any(thread.name == _NAME for thread in threading.enumerate()):
        return
    sentinel = parent.sentinel

    def watch() -> None:
        wait([sentinel])
        os._exit(1)

    threading.Thread(target=watch, name=_NAME, daemon=True).start()

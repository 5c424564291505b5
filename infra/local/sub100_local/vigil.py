"""What changed among the runner's programs from one look to the next, as lines for people."""

from collections.abc import Iterable
from pathlib import Path

from .runner import ProcessInfo
from .startup import tail


class Vigil:
    """The first look only remembers."""

    def __init__(self) -> None:
        self._last: dict[str, ProcessInfo] | None = None

    def look(self, processes: Iterable[ProcessInfo], logs: Path) -> list[str]:
        now = {info.name: info for info in processes}
        last, self._last = self._last, now
        if last is None:
            return []
        lines = []
        for name, info in now.items():
            before = last.get(name)
            if before is None:
                lines.append(f"{name} added")
            elif info.state != before.state and info.state == "FATAL":
                lines.append(f"{name} gave up: {info.spawn_error}\n{tail(logs, name)}")
            elif info.state in ("BACKOFF", "EXITED") and before.state != info.state:
                lines.append(f"{name} exited: {info.spawn_error or info.exit_status}; starting it again")
            elif info.pid and before.pid and info.pid != before.pid:
                lines.append(f"{name} exited and was started again")
        lines += [f"{name} removed" for name in last if name not in now]
        return lines

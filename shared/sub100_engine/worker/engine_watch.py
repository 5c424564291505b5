"""A core that hangs leaves a front process that answers everybody: the worker watches it itself."""

import itertools
import logging
from collections.abc import Callable
from typing import Final

from sub100_proto.fleet import Load
from sub100_proto.sampling import Sampling
from sub100_shared.clock import Clock

from ..api import Engine, Work
from .step_watch import StepWatch

_log = logging.getLogger(__name__)

_ONE_TOKEN: Final = Sampling(max_tokens=1, temperature=0.0, ignore_eos=True)


class EngineWatch:
    """``on_change`` is called with each new fault, and with an empty one when the engine steps again.

    A hung engine is given a token to make: nobody else's work shows then that it is back."""

    def __init__(
        self, engine: Engine, clock: Clock, interval_s: float, on_change: Callable[[str], None]
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._on_change = on_change
        self._steps = StepWatch(interval_s)
        self._probes = itertools.count()

    @property
    def fault(self) -> str:
        return self._steps.fault

    def look(self, load: Load, *, prompt_step_s: float) -> None:
        before = self._steps.fault
        self._steps.look(load, prompt_step_s=prompt_step_s, now_s=self._clock() / 1e3)
        fault = self._steps.fault
        if fault == before:
            return
        if fault:
            _log.error("engine hangs", extra={"reason": fault})
            probe = Work(attempt=f"probe-{next(self._probes)}", prompt=[0], sampling=_ONE_TOKEN)
            self._engine.decode(probe, lambda _: None)
        else:
            _log.warning("engine steps again")
        self._on_change(fault)

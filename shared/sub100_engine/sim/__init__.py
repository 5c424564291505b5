"""The simulated engine: continuous batching, chunked prefill, prefix cache and KV hand-over, no model.

Batching, blocks and hand-over are done for real; only the mathematics is replaced, by a timing model
(how long a step takes) and an answer source (which token comes next).
"""

from .answers import Answer, AnswerSource, CannedAnswers, ScriptedAnswers
from .clock import Clock, MonotonicClock, VirtualClock
from .config import SimConfig
from .engine import SimEngine
from .faults import Faults
from .timing import PRESETS, TimingModel

__all__ = [
    "PRESETS",
    "Answer",
    "AnswerSource",
    "CannedAnswers",
    "Clock",
    "Faults",
    "MonotonicClock",
    "ScriptedAnswers",
    "SimConfig",
    "SimEngine",
    "TimingModel",
    "VirtualClock",
]

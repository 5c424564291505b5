"""What may go wrong in a simulated engine; read by the engine at every step."""

import msgspec


class Faults(msgspec.Struct, kw_only=True):
    """All off by default; a test may change them while the engine runs.

    ``die_after_steps`` kills the engine core, ``hang_after_steps`` stops its steps while the process
    lives on; both count from start and 0 means never. ``fail_after_tokens`` ends each attempt with
    ``engine_error`` when it has made that many tokens (-1: never). ``delay_ms`` is added to each step.
    ``corrupt_kv`` hands over wrong bytes, ``stall_kv`` accepts a puller and sends nothing.
    """

    die_after_steps: int = 0
    hang_after_steps: int = 0
    fail_after_tokens: int = -1
    delay_ms: float = 0.0
    corrupt_kv: bool = False
    stall_kv: bool = False

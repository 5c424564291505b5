"""How long the simulated engine takes, as data."""

from typing import Final

import msgspec


class TimingModel(msgspec.Struct, frozen=True, kw_only=True):
    """A step takes ``step_ms + prefill_ms_per_token * prompt tokens + decode_ms_per_seq * decodes``.

    A hand-over moves ``kv_bytes_per_token`` a token at ``transfer_mib_s`` (0: in no time).
    """

    step_ms: float = 0.0
    prefill_ms_per_token: float = 0.0
    decode_ms_per_seq: float = 0.0
    transfer_mib_s: float = 0.0
    kv_bytes_per_token: int = 1024

    def step_s(self, num_prefill_tokens: int, num_decodes: int) -> float:
        """Seconds of one engine step."""
        prefill_ms = self.prefill_ms_per_token * num_prefill_tokens
        return (self.step_ms + prefill_ms + self.decode_ms_per_seq * num_decodes) / 1e3

    def kv_bytes(self, num_tokens: int) -> int:
        return self.kv_bytes_per_token * num_tokens

    def transfer_s(self, num_tokens: int) -> float:
        """Seconds that pulling the KV of a prompt takes."""
        if not self.transfer_mib_s:
            return 0.0
        return self.kv_bytes(num_tokens) / 2**20 / self.transfer_mib_s


PRESETS: Final = {
    "zero": TimingModel(),
    # SmolLM2-135M, bf16, one CPU thread: 21 tokens/s alone, 82 at four streams; 30 layers of 3 KV heads x 64.
    "smollm2-cpu": TimingModel(
        step_ms=38.0,
        prefill_ms_per_token=0.6,
        decode_ms_per_seq=2.0,
        transfer_mib_s=240.0,
        kv_bytes_per_token=30 * 2 * 3 * 64 * 2,
    ),
    # An 8B model with grouped-query attention on one H200 and 400 Gbit/s between hosts: plausible, not
    # measured by us. 32 layers of 8 KV heads x 128, bf16.
    "h200-8b": TimingModel(
        step_ms=5.5,
        prefill_ms_per_token=0.02,
        decode_ms_per_seq=0.03,
        transfer_mib_s=20_000.0,
        kv_bytes_per_token=32 * 2 * 8 * 128 * 2,
    ),
}

"""vLLM behind the Engine protocol; the only package that imports vllm and torch.

Two processes share it. Ours: ``engine`` (the adapter), ``attempt`` (one task each), ``kv_events`` (KV
events), ``stats`` (load, counters, transfer reports). vLLM's EngineCore loads ``connector`` by its module
path: ``scheduling`` and ``hand_over`` are its scheduler and worker halves, ``exporter`` and ``puller`` move
the bytes (with ``nixl_serving`` and ``nixl_reading`` where NIXL does), ``leases`` keeps blocks pinned,
``runner_patch`` lets output tokens arrive with a request, ``core_patch`` lets a core rest while KV waits.
"""

import os
import sys

# vLLM reads these at import; what its child needs is set by ``environment`` before it is spawned.
if "vllm" not in sys.modules:
    os.environ["VLLM_CONFIGURE_LOGGING"] = "0"  # its lines go where ours go
os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
os.environ["VLLM_NO_USAGE_STATS"] = "1"

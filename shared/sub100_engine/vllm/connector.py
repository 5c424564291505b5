"""The hand-over as a vLLM KV connector, loaded by vLLM through ``kv_connector_module_path``.

A thin shell: vLLM makes one per role and calls it; ``Scheduling`` and ``HandOver`` do the work.
"""

from typing import Any

import msgspec
from vllm.config import VllmConfig
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorHandshakeMetadata,
    KVConnectorRole,
    KVConnectorTransferResults,
)
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorStats
from vllm.v1.core.kv_cache_manager import KVCacheBlocks
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.kv_cache_interface import KVCacheConfig
from vllm.v1.metrics.cache_hit_source import CacheHitSource
from vllm.v1.request import Request

from . import core_patch, orphan
from .hand_over import HandOver, TransferSettings
from .kv_memory import from_tensors
from .orders import Orders, Place
from .scheduling import Scheduling

REPORTS = "sub100_reports"


class TransferStats(KVConnectorStats):  # type: ignore[misc]
    """Carries transfer reports to the adapter's process with the step's statistics."""

    data: dict[str, Any]

    def is_empty(self) -> bool:
        return not self.data.get(REPORTS)

    def reset(self) -> None:
        self.data = {}

    def reduce(self) -> dict[str, int | float]:
        return {"transfers": len(self.data.get(REPORTS, ()))}

    def aggregate(self, other: KVConnectorStats) -> "TransferStats":
        return TransferStats(data={REPORTS: [*self.data.get(REPORTS, ()), *other.data.get(REPORTS, ())]})


class Sub100Connector(KVConnectorBase_V1):  # type: ignore[misc]
    """Pull of whole prompts, the partial last block included; k output tokens come with the request."""

    _cache_hit_source = CacheHitSource.P2P

    def __init__(
        self, vllm_config: VllmConfig, role: KVConnectorRole, kv_cache_config: KVCacheConfig
    ) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        if vllm_config.parallel_config.world_size != 1:
            raise ValueError("this connector serves engines of one worker; use the NIXL connector")
        extra = self._kv_transfer_config.kv_connector_extra_config
        self._settings = msgspec.convert(extra, TransferSettings)
        self._num_blocks: int = kv_cache_config.num_blocks if kv_cache_config is not None else 0
        self._scheduling: Scheduling | None = None
        self._hand_over: HandOver | None = None
        orphan.die_with_parent()
        if role == KVConnectorRole.WORKER:
            core_patch.install()
            self._hand_over = HandOver(self._settings, core_patch.patience.wake)
        else:
            self._scheduling = Scheduling(vllm_config.cache_config.block_size, self._settings.lease_s)

    # -- worker role

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        self._worker.open(from_tensors(kv_caches, self._num_blocks, self._settings.description))

    def get_handshake_metadata(self) -> KVConnectorHandshakeMetadata | None:
        return self._worker.place

    def bind_connector_metadata(self, connector_metadata: Orders) -> None:
        super().bind_connector_metadata(connector_metadata)
        self._worker.discard(connector_metadata)

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        self._worker.start_pulls(self._get_connector_metadata())

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Loads are asynchronous: a request runs when all of its KV is there."""

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        """Nothing is saved: pullers read the blocks themselves."""

    def wait_for_save(self) -> None:
        self._worker.pin(self._get_connector_metadata())

    def get_transfer_results(self, finished_req_ids: set[str]) -> KVConnectorTransferResults:
        results = self._worker.take_results(finished_req_ids)
        return KVConnectorTransferResults(results.sent, results.received, results.failed)

    def get_kv_connector_stats(self) -> KVConnectorStats | None:
        if self._hand_over is None:
            return None
        reports = self._hand_over.take_reports()
        return TransferStats(data={REPORTS: reports}) if reports else None

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> KVConnectorStats | None:
        return TransferStats(data=data or {})

    def shutdown(self) -> None:
        if self._hand_over is not None:
            self._hand_over.close()

    # -- scheduler role

    def set_xfer_handshake_metadata(self, metadata: dict[int, KVConnectorHandshakeMetadata]) -> None:
        place = metadata.get(0)
        if isinstance(place, Place):
            self._scheduler.set_place(place)

    def on_new_request(self, request: Request) -> None:
        self._scheduler.add(request)

    def get_num_new_matched_tokens(
        self, request: Request, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        return self._scheduler.match(request, num_computed_tokens)

    def update_state_after_alloc(
        self, request: Request, blocks: KVCacheBlocks, num_external_tokens: int
    ) -> None:
        self._scheduler.allocate(request, list(blocks.get_block_ids()[0]), num_external_tokens)

    def build_connector_meta(self, scheduler_output: SchedulerOutput) -> Orders:
        return self._scheduler.orders(
            scheduler_output.num_scheduled_tokens,
            [new.req_id for new in scheduler_output.scheduled_new_reqs],
            self._block_ids_of,
        )

    def request_finished(self, request: Request, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        return self._scheduler.finish(request)

    def _block_ids_of(self, request_id: str) -> list[int]:
        manager = self._kv_cache_manager
        if manager is None:
            raise RuntimeError("the KV cache manager was never bound")
        ids: list[int] = manager.get_block_ids(request_id)[0]
        return ids

    @property
    def _worker(self) -> HandOver:
        if self._hand_over is None:
            raise RuntimeError("not the worker's connector")
        return self._hand_over

    @property
    def _scheduler(self) -> Scheduling:
        if self._scheduling is None:
            raise RuntimeError("not the scheduler's connector")
        return self._scheduling

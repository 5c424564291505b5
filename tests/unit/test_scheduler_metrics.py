"""What the scheduler's metrics say of a fleet and of decisions."""

import pytest
from tests.unit.scheduler_beats import beat, request, view

from sub100_proto.fleet import Heartbeat, Load
from sub100_proto.placement import Placement, Settled
from sub100_scheduler.scaling import Targets
from sub100_scheduler.scheduler_metrics import FleetMetrics, PlacementMetrics
from sub100_scheduler.view import RegionView
from sub100_shared.metrics import Metrics

PREFILL = {"sub100_role": "prefill", "sub100_pool": "default"}
DECODE = {"sub100_role": "decode", "sub100_pool": "default"}


class Look:
    """A view, its metrics, and what they read at a moment."""

    def __init__(self, region: RegionView) -> None:
        self.region = region
        self.metrics = Metrics()
        self.fleet = FleetMetrics(self.metrics, region, Targets(down_after_s=10.0))

    def at(self, now_ms: float) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        self.fleet.refresh(now_ms)
        self.metrics.read_states()
        return {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in self.metrics.families()
            for sample in family.samples
        }


def _of(found: dict[tuple[str, frozenset[tuple[str, str]]], float], name: str, **labels: str) -> float | None:
    return found.get((name, frozenset(labels.items())))


def busy(worker_id: str, role: str, **load: float) -> Heartbeat:
    return beat(worker_id, role, load=Load(**load), max_num_seqs=10)  # type: ignore[arg-type]


def test_pools_are_summed_up_over_their_ready_workers() -> None:
    look = Look(
        view(
            busy("p1", "prefill", num_waiting_tokens=1_000, num_running=2, kv_usage=0.2),
            busy("p2", "prefill", num_waiting_tokens=3_000, num_running=4, kv_usage=0.6),
            busy("d1", "decode", num_running=5, num_waiting=3, kv_usage=0.9),
            beat("d2", "decode", state="draining", load=Load(num_running=99, kv_usage=1.0)),
        )
    )
    found = look.at(1_500.0)

    assert _of(found, "sub100_fleet_workers", sub100_state="ready", **PREFILL) == 2
    assert _of(found, "sub100_fleet_workers", sub100_state="draining", **DECODE) == 1
    assert _of(found, "sub100_pool_waiting_tokens", **PREFILL) == 4_000
    assert _of(found, "sub100_pool_requests", **PREFILL) == 6
    assert _of(found, "sub100_pool_occupancy_ratio", **PREFILL) == pytest.approx(0.3)
    assert _of(found, "sub100_pool_occupancy_ratio", **DECODE) == pytest.approx(0.8)
    assert _of(found, "sub100_pool_kv_usage_ratio", **PREFILL) == pytest.approx(0.4)
    assert _of(found, "sub100_pool_kv_usage_ratio", **DECODE) == pytest.approx(0.9)
    assert _of(found, "sub100_fleet_heartbeat_age_seconds", **DECODE) == pytest.approx(1.5)


def test_predicted_ttft_is_the_best_workers_and_the_wait_is_the_mean() -> None:
    """The prior line: 4 ms a chunk of 2,048 and 50 ms a kilotoken; a recent prompt of 1,000 tokens."""
    region = view(
        busy("p1", "prefill"), busy("p2", "prefill", num_waiting_tokens=1_000), busy("d1", "decode")
    )
    region.workload.add(("prefill", "default"), num_tokens=1_000, work_ms=54.0)
    found = Look(region).at(10.0)

    assert _of(found, "sub100_pool_ttft_predicted_seconds", **PREFILL) == pytest.approx(0.054)
    # 0 ms at p1 and 50 ms at p2, against 20 ms
    demanded = _of(found, "sub100_pool_replicas_demanded", sub100_signal="wait", **PREFILL)
    assert demanded == 3


def test_placements_are_work_for_the_pool_that_computes_the_prompt() -> None:
    region = view(busy("p1", "prefill"), busy("d1", "decode"))
    look = Look(region)
    look.at(0.0)
    for i in range(400):
        region.on_heartbeat(busy("p1", "prefill"), i * 25.0)
        region.on_heartbeat(busy("d1", "decode"), i * 25.0)
        placed = region.place(request(1_000, request_id=f"r{i}"), f"pl-{i}", i * 25.0)
        assert isinstance(placed, Placement)
        if i:
            region.on_settled(Settled(placement_id=placed.placement_id, phase="all"))
    found = look.at(10_000.0)
    # 40 a second of 54 ms: 2.16 workers; a tenth second of smoothing has seen 63 % of them
    assert _of(found, "sub100_pool_work", **PREFILL) == pytest.approx(2.16 * (1 - 0.3679), rel=1e-2)
    assert _of(found, "sub100_pool_work", **DECODE) == 0
    assert _of(found, "sub100_pool_replicas_wanted", **PREFILL) == 2
    assert _of(found, "sub100_placement_open") == 1


def test_index_is_stale_until_a_worker_has_told_its_blocks() -> None:
    found = Look(view(busy("p1", "prefill"), busy("d1", "decode"))).at(10.0)

    assert _of(found, "sub100_index_stale") == 2
    assert _of(found, "sub100_index_blocks") == 0


def test_lapsed_workers_are_counted_and_leave_the_gauges() -> None:
    region = view(busy("p1", "prefill"), busy("d1", "decode"))
    look = Look(region)
    look.at(0.0)
    look.fleet.lapsed(len(region.tick(1_600.0)))
    found = look.at(1_600.0)

    assert _of(found, "sub100_fleet_lapsed_total") == 2
    assert _of(found, "sub100_fleet_workers", sub100_state="ready", **PREFILL) is None
    assert _of(found, "sub100_pool_replicas_wanted", **PREFILL) == 1


def test_decisions_are_counted_by_kind_and_refusals_by_code() -> None:
    region = view(busy("p1", "prefill"), busy("d1", "decode"))
    look = Look(region)
    recorder = PlacementMetrics(look.metrics)
    for avoid in ((), ("p1",), ("d1",)):
        recorder.record(region.place(request(avoid=avoid), f"pl-{len(avoid)}", 1.0), 0.2)
    found = look.at(1.0)

    assert _of(found, "sub100_placement_decided_total", sub100_placement="pair") == 1
    assert _of(found, "sub100_placement_decided_total", sub100_placement="alone") == 1
    assert _of(found, "sub100_admission_refused_total", error_type="no_capacity") == 1
    assert _of(found, "sub100_placement_duration_seconds_count") == 3

"""What ``make`` hands over: counts, ports, engines; each mistake is one line."""

import socket

import pytest

from sub100_bootstrap.failure import Failure
from sub100_local import options, ports
from sub100_local.options import Options


def test_replicas_are_counted_by_service() -> None:
    assert options.parse_replicas(["prefill=2", "decode=0"]) == {"prefill": 2, "decode": 0}


@pytest.mark.parametrize(
    "word", ["prefill=x", "prefill=", "prefill", "prefill=17", "prefill=-1", "ingress=0"]
)
def test_replicas_refuse_a_bad_count_and_name_it(word: str) -> None:
    with pytest.raises(Failure, match=word):
        options.parse_replicas([word])


@pytest.mark.parametrize("service", ["traces", "nats", "edge"])
def test_replicas_refuse_what_does_not_scale(service: str) -> None:
    with pytest.raises(Failure, match="can scale ingress, cache, scheduler, prefill, decode"):
        options.parse_replicas([f"{service}=2"])


def test_engine_is_one_of_two() -> None:
    assert options.parse_engine("sim") == "sim"
    with pytest.raises(Failure, match="ENGINE=cuda: known engines are vllm, sim"):
        options.parse_engine("cuda")


@pytest.mark.parametrize("value", ["0", "65536", "http", ""])
def test_port_out_of_range_is_named(value: str) -> None:
    with pytest.raises(Failure, match=f"PORT={value}: not a port"):
        options.parse_port("PORT", value)


def test_memory_grows_with_the_workers_and_is_small_for_the_simulation() -> None:
    two = {**dict.fromkeys(options.SCALABLE, 1), "prefill": 2}
    assert Options(engine="vllm").needed_memory_gib == pytest.approx(6.0)
    assert Options(engine="vllm", replicas=two).needed_memory_gib == pytest.approx(8.7)
    assert Options(engine="sim").needed_memory_gib < 1.0


def test_port_that_is_taken_is_named_with_the_way_out() -> None:
    with socket.socket() as taken:
        taken.bind((ports.HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(Failure, match=rf"port {port} is taken .*\(PORT=\.\.\.\)"):
            ports.demand("PORT", port)
        assert ports.prefer(port) != port
    assert ports.demand("PORT", port) == port

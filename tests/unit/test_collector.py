"""The collector's configuration: every name is defined, every wire leads to something that compose runs."""

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml  # type: ignore[import-untyped]

ROOT = Path(__file__).parents[2]


def load(path: str) -> dict[str, Any]:
    return dict(yaml.safe_load((ROOT / path).read_text()))


@pytest.fixture(scope="module")
def config() -> dict[str, Any]:
    return load("infra/collector/config.yaml")


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return load("docker-compose.yml")


def test_pipelines_name_only_what_is_defined_and_leave_nothing_out(config: dict[str, Any]) -> None:
    for kind in ("receivers", "processors", "exporters"):
        used = {name for pipeline in config["service"]["pipelines"].values() for name in pipeline[kind]}
        assert used == set(config[kind])


def test_memory_is_bounded_before_anything_is_batched(config: dict[str, Any]) -> None:
    """The limiter must be first, as its documentation asks."""
    for pipeline in config["service"]["pipelines"].values():
        assert pipeline["processors"] == ["memory_limiter", "batch"]
    for exporter in config["exporters"].values():
        assert exporter["sending_queue"]["queue_size"] > 0


def test_collector_takes_what_services_send_and_sends_to_what_runs(
    config: dict[str, Any], compose: dict[str, Any]
) -> None:
    services = compose["services"]
    assert config["receivers"]["otlp"]["protocols"]["http"]["endpoint"].endswith(":4318")
    for exporter in config["exporters"].values():
        endpoint = exporter["endpoint"]
        host = urlsplit(endpoint).hostname if "//" in endpoint else endpoint.partition(":")[0]
        assert set(services[str(host)]["networks"]) & set(services["collector"]["networks"])
    assert config["exporters"]["otlphttp/traces"]["endpoint"] == "http://traces:8090"


def test_one_variable_swaps_the_page_for_the_collector(compose: dict[str, Any]) -> None:
    for name in ("ingress", "cache", "scheduler", "prefill", "decode"):
        endpoint = compose["services"][name]["environment"]["OTEL_EXPORTER_OTLP_ENDPOINT"]
        assert endpoint == "${OTLP:-http://traces:8090}"
    for name in ("collector", "jaeger"):
        assert compose["services"][name]["profiles"] == ["observability"]


def test_page_is_closed_beyond_loopback(compose: dict[str, Any]) -> None:
    traces = compose["services"]["traces"]
    assert traces["environment"]["SUB100_TRACES_OPERATOR_KEY_FILE"] == "/run/secrets/operator_key"
    assert "operator_key" in traces["secrets"]
    assert compose["secrets"]["operator_key"]["file"].endswith("/operator.key")

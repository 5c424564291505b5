"""A real service sends its metrics to a collector's HTTP endpoint because the standard variables say so."""

import gzip
import http.server
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from tests.servers import Server, free_port
from tests.stack import SOURCES

TIMEOUT_S = 30.0


class Collector(http.server.ThreadingHTTPServer):
    """Takes OTLP/HTTP exports on loopback."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.exports: list[tuple[str, ExportMetricsServiceRequest]] = []
        self.changed = threading.Condition()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def metrics(self) -> dict[str, Any]:
        """Of the latest export, by name."""
        _, latest = self.exports[-1]
        return {m.name: m for r in latest.resource_metrics for s in r.scope_metrics for m in s.metrics}

    def wait(self, num_exports: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.exports) >= num_exports, TIMEOUT_S)


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        with self.server.changed:
            self.server.exports.append((self.path, ExportMetricsServiceRequest.FromString(body)))
            self.server.changed.notify_all()
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # its name in the base class
        """Nothing."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    server = Collector()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_service_exports_its_metrics_each_interval_and_once_more_at_its_end(
    nats_server: Server, collector: Collector
) -> None:
    env = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("SUB100_", "OTEL_"))},
        "PYTHONPATH": os.pathsep.join(map(str, SOURCES)),
        "SUB100_INSTANCE": "scheduler-7",
        "SUB100_REGION": "export-test",
        "SUB100_NATS_URL": nats_server.url,
        "SUB100_OPS_PORT": str(free_port()),
        "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": f"{collector.url}/v1/metrics",
        "OTEL_METRIC_EXPORT_INTERVAL": "200",
    }
    process = subprocess.Popen([sys.executable, "-m", "sub100_scheduler"], env=env, stderr=subprocess.PIPE)
    try:
        collector.wait(3)
        num_before = len(collector.exports)
        process.terminate()
        _, errors = process.communicate(timeout=TIMEOUT_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, errors.decode()[-2000:]
    assert len(collector.exports) > num_before
    assert {path for path, _ in collector.exports} == {"/v1/metrics"}

    resource = collector.exports[-1][1].resource_metrics[0].resource
    told = {pair.key: pair.value.string_value for pair in resource.attributes}
    assert (told["service.name"], told["service.instance.id"], told["cloud.region"]) == (
        "sub100-scheduler",
        "scheduler-7",
        "export-test",
    )
    metrics = collector.metrics()
    lag = metrics["sub100.loop.lag"].histogram.data_points[0]
    assert lag.count == sum(lag.bucket_counts) > 0
    state = metrics["sub100.service.ready"].gauge.data_points[0]
    assert state.attributes[0].value.string_value == "stopped"

"""Rules, alerts, dashboard and scalers ask only for what is in the list of metrics, with labels that it has.

Expressions go through GreptimeDB's PromQL parser. promtool, where it is installed, checks more
(``promtool test rules infra/prometheus/alerts.test.yml``).
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import promql_parser as promql
import pytest
import yaml  # type: ignore[import-untyped]

from sub100_shared.catalog import METRICS, PROCESS_SERIES
from sub100_shared.metric import Metric

ROOT: Final = Path(__file__).resolve().parents[2]
INFRA: Final = ROOT / "infra"
SERIES: Final[dict[str, Metric]] = {name: metric for metric in METRICS for name in metric.series_names}
TARGET_LABELS: Final = {"job", "instance", "region"}
COUNTS: Final = {"rate", "increase", "irate"}
DURATION: Final = re.compile(r"\d+(s|m|h|d)")


def load(path: str) -> Any:
    return yaml.safe_load((INFRA / path).read_text())


def rules(path: str) -> list[dict[str, Any]]:
    return [rule for group in load(path)["groups"] for rule in group["rules"]]


RECORDED: Final = {rule["record"] for rule in rules("prometheus/rules.yml")}
ALERTS: Final = rules("prometheus/alerts.yml")
DASHBOARD: Final = json.loads((INFRA / "grafana/sub100.json").read_text())


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def expressions() -> Iterator[tuple[str, str]]:
    """Where it is from, and the expression with Grafana's variables filled in."""
    for rule in (*rules("prometheus/rules.yml"), *ALERTS):
        yield rule.get("record") or rule["alert"], rule["expr"]
    for panel in panels():
        for target in panel["targets"]:
            text = target["expr"].replace("$__rate_interval", "1m")
            yield panel["title"], re.sub(r"\$(tier|pool)", ".*", text)
    for name in ("prefill", "decode"):
        yield f"keda {name}", scaler(name)["metadata"]["query"]


def scaler(name: str) -> dict[str, Any]:
    found: dict[str, Any] = load(f"keda/{name}.yaml")["spec"]["triggers"][0]
    return found


class Checker:
    """Walks an expression: every series known, every label one that it has, counters alone in rate()."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self._labels: set[str] = set(TARGET_LABELS)

    def check(self, text: str) -> None:
        expression = promql.parse(text)
        promql.walk(expression, self._visit_selectors)
        promql.walk(expression, self._visit_groupings)

    def _visit_selectors(self, node: promql.Expr) -> bool:
        if isinstance(node, promql.Call) and node.func.name in COUNTS:
            selector = node.args[0].vector_selector
            metric = SERIES.get(selector.name)
            assert metric is None or metric.kind != "gauge", f"{node.func.name} of a gauge: {selector.name}"
        if isinstance(node, promql.Call) and node.func.name == "histogram_quantile":
            assert "_bucket" in str(node), node
        if isinstance(node, promql.VectorSelector):
            self._check_selector(node)
        return True

    def _check_selector(self, node: promql.VectorSelector) -> None:
        name = node.name
        assert name is not None, node
        self.names.add(name)
        if name in SERIES:
            labels = set(SERIES[name].prometheus_labels) | ({"le"} if name.endswith("_bucket") else set())
        else:
            assert name in RECORDED or name in PROCESS_SERIES or name == "up", f"nobody emits {name}"
            labels = set()
        for matcher in node.matchers.matchers:
            assert matcher.name in labels | TARGET_LABELS, f"{name} has no label {matcher.name}"
            if matcher.name == "le":
                metric = SERIES[name]
                assert float(matcher.value) in metric.buckets, f"{name} has no edge at {matcher.value}"
        self._labels |= labels

    def _visit_groupings(self, node: promql.Expr) -> bool:
        if isinstance(node, promql.AggregateExpr) and node.modifier is not None:
            assert set(node.modifier.labels) <= self._labels, node
        return True


@pytest.mark.parametrize(("where", "text"), list(expressions()))
def test_expression_asks_for_what_is_emitted(where: str, text: str) -> None:
    checker = Checker()
    checker.check(text)
    assert checker.names, where


def test_every_metric_is_on_the_dashboard_or_in_an_alert() -> None:
    """What nobody looks at costs all the same."""
    checker = Checker()
    for _, text in expressions():
        checker.check(text)
    unseen = [m.name for m in METRICS if not checker.names & set(m.series_names)]
    assert unseen == ["gen_ai.server.request.duration"]  # for who comes with a dashboard of the convention


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_alert_is_whole(alert: dict[str, Any]) -> None:
    assert set(alert) <= {"alert", "expr", "for", "labels", "annotations"}
    assert alert["labels"] in ({"severity": "page"}, {"severity": "ticket"})
    assert set(alert["annotations"]) == {"summary", "runbook"}
    assert DURATION.fullmatch(alert.get("for", "1m"))


def test_every_alert_has_its_paragraph_in_the_runbook_and_every_paragraph_its_alert() -> None:
    text = (ROOT / "docs/runbook.md").read_text()
    paragraphs = dict(re.findall(r"^### (\w+)\n\n(\S.*)$", text, re.MULTILINE))
    assert set(paragraphs) == {alert["alert"] for alert in ALERTS}
    for alert in ALERTS:
        assert alert["annotations"]["runbook"] == f"docs/runbook.md#{alert['alert'].lower()}"


def test_alert_and_record_names_are_unique() -> None:
    for names in ([alert["alert"] for alert in ALERTS], [r["record"] for r in rules("prometheus/rules.yml")]):
        assert len(set(names)) == len(names)


def test_recorded_windows_are_those_that_alerts_compare() -> None:
    text = (INFRA / "prometheus/alerts.yml").read_text()
    used = set(re.findall(r"sub100:\w+:ratio_rate\w+", text))
    assert used == RECORDED


def test_prometheus_reads_the_rules_and_scrapes_every_service() -> None:
    config = load("prometheus/prometheus.yml")
    assert config["rule_files"] == ["rules.yml", "alerts.yml"]
    jobs = {scrape["job_name"] for scrape in config["scrape_configs"]}
    assert jobs == {"ingress", "cache", "scheduler", "prefill", "decode", "traces"}


def test_panels_have_what_grafana_needs() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    titles = [panel["title"] for panel in panels()]
    assert len(set(titles)) == len(titles) - 1  # tokens, of all and of tenants
    for panel in panels():
        assert panel["type"] in ("timeseries", "stat")
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        refs = [target["refId"] for target in panel["targets"]]
        assert len(set(refs)) == len(refs) > 0


def test_panels_lie_side_by_side() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        assert 0 <= at["x"] <= at["x"] + at["w"] <= 24
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells


def test_dashboard_variables_are_those_that_are_used() -> None:
    known = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(DASHBOARD["panels"]))) - {"__rate_interval"}
    assert used == known


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_scaler_follows_what_the_scheduler_wants(role: str) -> None:
    spec = load(f"keda/{role}.yaml")["spec"]
    trigger = scaler(role)
    assert load(f"keda/{role}.yaml")["apiVersion"] == "keda.sh/v1alpha1"
    assert spec["scaleTargetRef"]["name"] == f"sub100-{role}"
    assert 1 <= spec["minReplicaCount"] <= spec["fallback"]["replicas"] <= spec["maxReplicaCount"]
    assert (trigger["type"], trigger["metricType"]) == ("prometheus", "AverageValue")
    assert trigger["metadata"]["threshold"] == "1"
    assert f'sub100_role="{role}"' in trigger["metadata"]["query"]
    assert "sub100_pool_replicas_wanted" in trigger["metadata"]["query"]

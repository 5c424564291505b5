"""The waterfall in a real browser: its numbers are the ledger's, its shapes lie where the ruler says."""

import itertools
import json
import urllib.request
from typing import Any

import pytest
from playwright.sync_api import Locator, expect
from tests.browser.traces_service import Traces
from tests.browser.visit import Visit

from sub100_shared import semconv

PX = 2.0
"""Of tolerance: rounding to pixels, and strokes."""


def row(visit: Visit, name: str, index: int = 0) -> Locator:
    return visit.page.locator(f"details.span:has(.name:text-matches('^{name}'))").nth(index)


def ledger_of(traces: Traces, request_id: str) -> dict[str, Any]:
    """What the spans say of the request, through the programs' door."""
    with urllib.request.urlopen(f"{traces.url}/api/traces?q={request_id}", timeout=10) as answer:
        [found] = json.load(answer)["requests"]
    with urllib.request.urlopen(f"{traces.url}/api/trace/{found['trace_id']}", timeout=10) as answer:
        return dict(json.load(answer))


def opened(visit: Visit, traces: Traces, **story: Any) -> dict[str, Any]:
    """Send a request, open its waterfall, and return its ledger."""
    request_id = traces.send(**story)
    page = visit.go("/")
    page.wait_for_selector(f"a[href='/r/{request_id}']")
    page.click(f"a[href='/r/{request_id}']")
    page.wait_for_url(f"**/r/{request_id}")
    return ledger_of(traces, request_id)


def test_waterfall_says_in_one_sentence_where_the_budget_went(visit: Visit, traces: Traces) -> None:
    opened(visit, traces, queue_ms=40.0, compute_ms=43.0, network_ms=20.0)
    sentence = visit.page.inner_text("#verdict")
    assert sentence.startswith("Prefill took 84 ms of its 60: compute 43 ms, queue 40 ms on worker prefill-")
    assert sentence.endswith("; first token after 107 ms, 7.1 ms over its 100.")
    assert row(visit, "prefill.job").evaluate("node => node.classList.contains('blamed')") is True


def test_waterfall_draws_each_hop_where_the_ledger_puts_it(visit: Visit, traces: Traces) -> None:
    ledger = opened(visit, traces, queue_ms=30.0, compute_ms=30.0, network_ms=20.0)
    lane = row(visit, "prefill.job").locator("svg.lane").bounding_box()
    bar = row(visit, "prefill.job").locator("rect.h-prefill.bus").bounding_box()
    assert lane is not None
    assert bar is not None
    found = next(item for item in ledger["rows"] if item["span"]["name"] == semconv.PREFILL)
    ruler = ledger["ruler"]
    assert ruler["first_ms"] == 100
    per_ms = lane["width"] * 0.72 / ruler["first_ms"]
    assert bar["x"] - lane["x"] == pytest.approx(found["offset_ms"] * per_ms, abs=PX)
    assert bar["width"] == pytest.approx(found["duration_ms"] * per_ms, abs=PX)
    budget = row(visit, "prefill.job").locator("line.budget").bounding_box()
    assert budget is not None
    assert budget["x"] - lane["x"] == pytest.approx(lane["width"] * 0.72, abs=PX)
    account = found["account"]
    took = row(visit, "prefill.job").locator(".took").inner_text()
    assert took.split()[:4] == [f"{account['spent_ms']:.1f}", "ms", "of", "60"]


def test_critical_path_is_drawn_without_gap_up_to_the_first_byte(visit: Visit, traces: Traces) -> None:
    ledger = opened(visit, traces, queue_ms=5.0)
    request = ledger["request"]
    path = ledger["path"]
    assert [piece["hop"] for piece in path] == [
        "network",
        "ingress",
        "schedule",
        "ingress",
        "prefill",
        "ingress",
    ]
    assert path[-1]["end_ms"] == pytest.approx(request["network_ms"] + request["ttft_ms"])
    boxes = [
        box for piece in row(visit, "chat").locator("rect[class^=h-]").all() if (box := piece.bounding_box())
    ]
    first_byte = row(visit, "chat").locator("line.first-byte").bounding_box()
    assert first_byte is not None
    for before, after in itertools.pairwise(boxes):
        assert after["x"] == pytest.approx(before["x"] + before["width"], abs=0.6)
    assert boxes[-1]["x"] + boxes[-1]["width"] == pytest.approx(first_byte["x"], abs=PX)


def test_what_ran_beside_is_hatched_and_what_came_after_is_said_to(visit: Visit, traces: Traces) -> None:
    opened(visit, traces)
    expect(row(visit, "cache.lookup").locator(".tag")).to_have_text("beside")
    expect(row(visit, "cache.lookup").locator("rect.hatch")).to_have_count(1)
    expect(row(visit, "prefill.job").locator("rect.hatch")).to_have_count(0)
    expect(row(visit, "decode.job").locator(".tag")).to_have_text("after first token")


def test_attempts_are_numbered_and_the_lost_one_is_marked(visit: Visit, traces: Traces) -> None:
    opened(visit, traces, lost=True)
    expect(row(visit, "prefill.job").locator(".tag").first).to_have_text("#1")
    expect(row(visit, "prefill.job").locator(".tag.bad")).to_have_text("worker_lost")
    expect(row(visit, "prefill.job", 1).locator(".tag").first).to_have_text("#2")
    expect(visit.page.locator(".notes")).to_contain_text("2 attempts")


def test_skewed_clocks_never_draw_outside_the_lane(visit: Visit, traces: Traces) -> None:
    opened(visit, traces, skew_ms=-3000.0)
    expect(visit.page.locator(".notes")).to_contain_text("clocks of processes differ by up to 3000 ms")
    for lane in visit.page.locator("details.span svg.lane").all():
        outer = lane.bounding_box()
        assert outer is not None
        for shape in lane.locator("rect").all():
            box = shape.bounding_box()
            assert box is not None
            assert box["width"] >= 0
            assert outer["x"] - PX <= box["x"] <= outer["x"] + outer["width"] + PX
    process = row(visit, "prefill.process").locator("rect.inner").bounding_box()
    job = row(visit, "prefill.job").locator("rect.bus").bounding_box()
    assert process is not None
    assert job is not None
    assert job["x"] <= process["x"]
    assert process["x"] + process["width"] <= job["x"] + job["width"]


def test_attributes_are_shown_on_demand(visit: Visit, traces: Traces) -> None:
    opened(visit, traces)
    details = row(visit, "prefill.job")
    expect(details.locator("dl")).to_be_hidden()
    details.locator("summary").click()
    expect(details.locator("dl")).to_contain_text(semconv.ALLOTTED_MS)


def test_refused_request_is_found_by_the_id_that_its_error_named(visit: Visit, traces: Traces) -> None:
    opened(visit, traces, error="no_capacity", schedule_ms=2.0, answer_ms=0.0)
    expect(visit.page.locator("#verdict")).to_have_text("Failed with no_capacity after 3.0 ms.")


def test_unknown_id_says_so_and_leads_back(visit: Visit) -> None:
    page = visit.page
    page.goto(f"{visit.url}/r/nobody")
    expect(page.locator("h1")).to_have_text("Not found")
    visit.complaints.clear()  # Chromium notes the 404 on the console
    page.keyboard.press("Escape")
    page.wait_for_url(f"{visit.url}/")

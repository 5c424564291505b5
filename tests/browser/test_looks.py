"""Every page on a laptop and a phone, light and dark: nothing overflows, all text can be read."""

from typing import Any, Final

import pytest
from playwright.sync_api import expect
from tests.browser.traces_service import Traces
from tests.browser.visit import LAPTOP, PHONE, Visit

SIZES: Final = {"laptop": LAPTOP, "phone": PHONE}
LOOKS: Final = [(size, scheme) for size in SIZES for scheme in ("light", "dark")]
MIN_CONTRAST: Final = 4.5

CONTRASTS: Final = """() => {
    const channel = c => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    const luminance = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
    const parse = text => (text.match(/[\\d.]+/g) || []).map(Number);
    const ground = node => {
        for (; node; node = node.parentElement) {
            const colour = parse(getComputedStyle(node).backgroundColor);
            if (colour.length === 3 || colour[3] === 1) return colour;
        }
        return [255, 255, 255];
    };
    const found = [];
    for (const node of document.querySelectorAll('main *, header *')) {
        const text = [...node.childNodes].map(n => n.nodeType === 3 ? n.data.trim() : '').join('');
        const box = node.getBoundingClientRect();
        if (!text || !box.width || !box.height || node.closest('[hidden], .skip')) continue;
        const style = getComputedStyle(node);
        const ink = parse(node.namespaceURI.endsWith('svg') ? style.fill : style.color);
        const [high, low] = [luminance(ink), luminance(ground(node))].sort((a, b) => b - a);
        found.push([(high + 0.05) / (low + 0.05), text.slice(0, 40)]);
    }
    return found.sort((a, b) => a[0] - b[0]).slice(0, 3);
}"""


def context(size: str, scheme: str) -> dict[str, Any]:
    width, height = SIZES[size]
    return {
        "viewport": {"width": width, "height": height},
        "color_scheme": scheme,
        "has_touch": size == "phone",
        "device_scale_factor": 2 if size == "phone" else 1,
    }


@pytest.mark.parametrize("page_name", ["list", "waterfall", "fleet"])
@pytest.mark.parametrize(
    ("visit", "look"),
    [(context(*look), look) for look in LOOKS],
    indirect=["visit"],
    ids=["-".join(look) for look in LOOKS],
)
def test_page_fits_and_can_be_read(
    visit: Visit, traces: Traces, look: tuple[str, str], page_name: str
) -> None:
    request_id = traces.send(queue_ms=44.0, compute_ms=38.0, network_ms=18.0)
    page = visit.go("/")
    page.wait_for_selector(f"a[href='/r/{request_id}']")
    if page_name == "waterfall":
        visit.go(f"/r/{request_id}")
    elif page_name == "fleet":
        visit.go("/fleet")
    else:
        expect(page.locator("#rows svg.mini .h-prefill").first).to_be_attached()
    scroll, width = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert scroll <= width
    worst = page.evaluate(CONTRASTS)
    assert worst[0][0] >= MIN_CONTRAST, worst
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
    assert dark == (look[1] == "dark")


@pytest.mark.parametrize("visit", [{"reduced_motion": "reduce"}], indirect=True)
def test_nothing_moves_for_those_who_ask_for_stillness(visit: Visit, traces: Traces) -> None:
    page = visit.go("/")
    expect(page.locator("#live")).to_have_text("live")
    request_id = traces.send()
    page.wait_for_selector(f"li.new a[href='/r/{request_id}']")
    assert page.evaluate("document.getAnimations().length") == 0


def test_fleet_shows_hops_blame_and_percentiles_of_the_range(visit: Visit) -> None:
    page = visit.go("/fleet")
    hops = [text.strip() for text in page.locator("table.hops tbody th").all_text_contents()]
    assert hops == ["network", "ingress", "cache", "schedule", "prefill"]
    assert page.locator("polyline.p99-line").count() >= 1
    bars = page.locator(".plot rect.piece.h-prefill")
    assert bars.count() > 10
    expect(page.locator(".rows a").first).to_be_visible()
    page.check("input[value='15m']", force=True)
    page.wait_for_url("**range=15m**")
    assert page.locator(".plot rect.piece.h-prefill").count() < bars.count() + 10
    page.select_option("select[name=worker]", "prefill-2")
    page.wait_for_url("**worker=prefill-2**")
    page.locator(".rows a").first.click()
    page.wait_for_url("**/r/**")

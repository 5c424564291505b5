import pytest

from sub100_ingress.lead import Lead


def allowed(
    lead: Lead, *, remaining_ms: float = 80, predicted_ttft_ms: float = 20, has_headroom: bool = True
) -> float:
    return lead.allowed_ms(
        "t",
        remaining_ms=remaining_ms,
        allotted_ms=10,
        predicted_ttft_ms=predicted_ttft_ms,
        has_headroom=has_headroom,
    )


def test_tenant_that_hits_waits_as_long_as_a_hit_takes() -> None:
    lead = Lead()
    assert allowed(lead) == 2.0
    for _ in range(200):
        lead.learn("t", 3.0)
    assert allowed(lead) == pytest.approx(6.0)


def test_tenant_that_only_misses_comes_to_wait_for_nothing() -> None:
    lead = Lead()
    num_misses = 0
    while allowed(lead):
        lead.learn("t", None)
        num_misses += 1
    assert 10 < num_misses < 20
    for _ in range(4):
        lead.learn("t", 1.0)
    assert allowed(lead) > 0
    assert lead.allowed_ms(
        "u", remaining_ms=80, allotted_ms=10, predicted_ttft_ms=20, has_headroom=True
    )  # another tenant's misses are its own


def test_without_headroom_the_look_up_may_take_its_allotment() -> None:
    assert allowed(Lead(), has_headroom=False) == 10


@pytest.mark.parametrize(("remaining_ms", "expected"), [(21.5, 1.5), (20, 0), (5, 0), (-3, 0)])
@pytest.mark.parametrize("has_headroom", [True, False])
def test_never_more_than_the_budget_less_the_prediction(
    remaining_ms: float, expected: float, has_headroom: bool
) -> None:
    assert allowed(Lead(), remaining_ms=remaining_ms, has_headroom=has_headroom) == expected

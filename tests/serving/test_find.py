"""Searches by simulation: as good as trying all, never beyond the bound; or they say why not."""

import pytest

import accelsim
from accelsim import Arrivals, ServingOptions, SloTargets
from accelsim.errors import InvalidValueError
from accelsim.serving.find import find

SLO = SloTargets(ttft_s=0.4, tpot_s=0.04)
PAIR = ("llama-3.1-8b", "h100-sxm-80gb")


def load(rate):
    return Arrivals(rate_per_s=rate, requests=300)


def test_the_most_load_is_the_edge_of_what_meets_the_targets():
    found = find("max-rate", *PAIR, load(1.0), ServingOptions(slo=SLO))
    assert found.value < found.bound
    assert found.result.slo_attainment_fraction >= 0.9
    assert found.attainment_low < found.result.slo_attainment_fraction < found.attainment_high
    more = find("max-rate", *PAIR, load(1.0), ServingOptions(slo=SLO, replicas=2))
    assert more.value > 1.7 * found.value
    assert "requests/s at most" in found.sentence


def test_the_fewest_replicas_are_those_of_trying_all():
    asked = Arrivals(rate_per_s=60.0, requests=2500)
    found = find("min-replicas", *PAIR, asked, ServingOptions(slo=SLO))
    tried = [
        accelsim.serve(*PAIR, asked, slo=SLO, replicas=count)
        for count in range(1, int(found.value) + 1)
    ]
    good = [one.slo_attainment_fraction >= 0.9 and not one.saturated for one in tried]
    assert good.index(True) + 1 == found.value
    assert found.value >= found.bound


def test_a_burst_has_no_rate_to_find():
    burst = Arrivals(rate_per_s=1.0, requests=30, process="burst")
    with pytest.raises(InvalidValueError, match="process"):
        find("max-rate", *PAIR, burst, ServingOptions(slo=SLO))


@pytest.mark.parametrize(
    ("question", "slo"),
    [("max-rate", SloTargets(ttft_s=1e-6)), ("max-rate", SloTargets()), ("most", SLO)],
)
def test_questions_without_an_answer_are_refused(question, slo):
    with pytest.raises(InvalidValueError):
        find(question, *PAIR, load(1.0), ServingOptions(slo=slo))

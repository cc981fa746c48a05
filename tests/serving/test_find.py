"""Searches by simulation: as good as trying all, never beyond the bound; or they say why not."""

from dataclasses import replace

import numpy as np
import pytest

import accelsim
from accelsim import Arrivals, ServingOptions, SloTargets
from accelsim.errors import InvalidValueError
from accelsim.serving.find import find
from accelsim.serving.loads.requests import RequestColumns
from accelsim.serving.loads.sessions import SessionOptions
from accelsim.serving.options import ServiceClass
from accelsim.serving.speculation import USUAL_GUESSES
from accelsim.simulation.randomness import RandomStreams

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
    assert "requests/s is the most for the targets" in found.sentence


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


def test_a_trace_is_stretched_to_the_rates_that_are_tried():
    trace = load(3.0).columns(RandomStreams(0))
    assert trace.at_rate(6.0).rate_per_s == pytest.approx(6.0)
    found = find("max-rate", *PAIR, trace, ServingOptions(slo=SLO))
    drawn = find("max-rate", *PAIR, load(3.0), ServingOptions(slo=SLO))
    assert found.value == pytest.approx(drawn.value, rel=0.2)
    assert found.result.requests == len(trace)
    fewest = find("min-replicas", *PAIR, trace.at_rate(60.0), ServingOptions(slo=SLO))
    assert fewest.value >= 60.0 / found.bound


def test_each_class_keeps_its_own_targets():
    few = {"slo": SLO, "max_seqs": 16}
    plain = find("max-rate", *PAIR, load(1.0), ServingOptions(**few))
    alone = find("max-rate", *PAIR, load(1.0), ServingOptions(**few, classes=(ServiceClass("a"),)))
    assert alone.value == plain.value
    loose = (ServiceClass("chat", 0.3, ttft_s=0.4), ServiceClass("batch", 0.7, 1, e2e_s=60.0))
    tight = (replace(loose[0], ttft_s=0.12), loose[1])
    rates = []
    for classes in (loose, tight):
        found = find("max-rate", *PAIR, load(1.0), ServingOptions(max_seqs=16, classes=classes))
        shares = [row["slo_attainment_fraction"] for row in found.result.classes]
        assert min(shares) >= 0.9
        assert found.attainment_low < min(shares) < found.attainment_high
        rates.append(found.value)
    assert rates[0] > rates[1]
    fewest = find("min-replicas", *PAIR, load(40.0), ServingOptions(max_seqs=16, classes=tight))
    assert fewest.value >= 40.0 / rates[1] * 0.7


def test_no_load_of_sessions_is_beyond_its_bound():
    session = SessionOptions(4, gap_s=0.2, agents=2, tool="200")
    asked = Arrivals(rate_per_s=1.0, requests=3000, session=session, prefix_tokens=3000)
    found = find("max-rate", *PAIR, asked, ServingOptions(slo=SLO))
    assert 0.3 * found.bound < found.value < found.bound
    assert "sessions/s is the most for the targets" in found.sentence
    assert found.result.throughput_requests_per_s < found.bound * session.requests


def test_requests_all_at_once_have_no_rate_to_find():
    burst = RequestColumns(np.zeros(9), np.full(9, 64), np.full(9, 8))
    with pytest.raises(InvalidValueError, match="arrival_s"):
        find("max-rate", *PAIR, burst, ServingOptions(slo=SLO))


def test_more_load_is_found_where_fewer_requests_must_meet_the_targets():
    some, most = (
        find("max-rate", *PAIR, load(1.0), ServingOptions(slo=replace(SLO, attainment_fraction=x)))
        for x in (0.5, 0.99)
    )
    assert some.value > most.value


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


def test_speculation_unsaid_is_told_with_both_answers():
    load = Arrivals(rate_per_s=5.0, requests=40, prompt="500", output="50")
    asked = ("max-rate", "qwen3-next-80b-a3b", "h200-sxm-141gb", load)
    slo = SloTargets(tpot_s=0.1)
    unsaid = find(*asked, ServingOptions(tp=2, slo=slo))
    said = find(*asked, ServingOptions(tp=2, slo=slo, speculation=USUAL_GUESSES))
    (told,) = (text for text in unsaid.result.warnings if "speculation" in text)
    assert f"{said.value:.4g} in place of {unsaid.value:.4g}" in told
    assert not any("speculation" in text for text in said.result.warnings)

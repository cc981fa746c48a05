"""Every result has one form: kind, inputs, metrics, provenance, and units in its names."""

from __future__ import annotations

import json

import pytest

import accelsim
from accelsim import ModelOptions, PriceChoice, RunOptions, RunShape
from accelsim.estimation.options import options_and_price, run_options
from accelsim.result import UNIT_SUFFIXES, Difference

#: Keys that are quantities without a unit, names, flags, or containers.
PLAIN = {
    *("kind", "schema_version", "inputs", "metrics", "provenance", "warnings", "evidence"),
    *("workload", "device", "batch", "precision", "mode", "execution", "tier", "bound", "fits"),
    *("flop", "bytes", "offer", "memory", "operators", "passes", "host", "relatives", "heap"),
    *("interval_level", "seq_len", "output_len"),
    *(
        "sparse_weights",
        "trained_positions",
        "stack",
        "layout",
        "would_fit",
        "price_as_of",
        "steps",
    ),
}


@pytest.fixture(scope="module")
def results():
    run = {"seq_len": 32, "output_len": 4}
    return [call("gpt2", "t4", **run) for call in (accelsim.estimate, accelsim.simulate)]


def test_every_key_has_a_unit_or_is_none(results):
    for result in results:
        document = result.to_dict()
        wrong = [key for key in document if key not in PLAIN and not key.endswith(UNIT_SUFFIXES)]
        assert not wrong
        assert {"kind", "schema_version", "inputs", "metrics", "provenance"} <= document.keys()


def test_json_is_strict_and_whole(results):
    for result in results:
        assert json.loads(result.to_json()) == result.to_dict()


def test_metrics_hold_their_own_values(results):
    for result in results:
        for name, metric in result.metrics.items():
            assert metric.value == result.figures()[name], name
            if metric.low is not None:
                assert metric.low <= metric.value <= metric.high
                assert 0 < metric.level < 1


def test_a_result_shows_itself_in_a_line_and_a_table(results):
    for result in results:
        assert repr(result).startswith(f"<{type(result).__name__}: gpt2 on t4")
        assert len(repr(result)) < 160
        table = result._repr_html_()
        assert table.count("<tr>") == sum(m.value is not None for m in result.metrics.values())


def test_data_hashes_tell_content_apart():
    one, same, other = (
        accelsim.estimate("resnet-50", device, batch=1) for device in ("t4", "t4", "l4")
    )
    assert one.provenance.data_hashes == same.provenance.data_hashes
    assert one.provenance.version == accelsim.__version__
    assert one.provenance.data_hashes["device"] != other.provenance.data_hashes["device"]
    assert one.provenance.data_hashes["workload"] == other.provenance.data_hashes["workload"]


def test_a_difference_names_what_changed():
    one, other = (accelsim.estimate("resnet-50", "t4", batch=batch) for batch in (1, 8))
    changed = one.diff(other)
    assert changed["batch"] == Difference(1, 8)
    assert changed["batch"].ratio == 8
    assert changed["latency_s"].ratio == other.latency_s / one.latency_s
    assert "workload" not in changed
    assert not one.diff(one)
    with pytest.raises(TypeError, match="simulation"):
        one.diff(accelsim.simulate("resnet-50", "t4"))


def test_options_and_keywords_are_two_ways_to_say_one_thing():
    options = RunOptions(model=ModelOptions(precision="fp16"), shape=RunShape(batch=4))
    price = PriceChoice(usd_per_hour=2.0)
    said = accelsim.estimate("resnet-50", "t4", options, price)
    assert said == accelsim.estimate("resnet-50", "t4", precision="fp16", batch=4, usd_per_hour=2.0)
    assert accelsim.estimate("resnet-50", "t4", options, price, batch=8).batch == 8


def test_options_are_hashable_and_unchanged_by_keywords():
    options = RunOptions(shape=RunShape(batch=4))
    changed = run_options(options, {"batch": 8, "tier": "spec"})
    assert (options.shape.batch, changed.shape.batch, changed.tier) == (4, 8, "spec")
    assert len({options, changed, RunOptions(shape=RunShape(batch=4))}) == 2


def test_a_keyword_that_is_none_is_refused_as_python_does():
    with pytest.raises(TypeError, match="'batches'"):
        options_and_price(None, None, {"batches": 3})


def test_a_region_chooses_among_offers():
    cheapest = accelsim.estimate("resnet-50", "h100-sxm-80gb")
    aws = accelsim.estimate("resnet-50", "h100-sxm-80gb", provider="aws")
    assert aws.offer.startswith("aws/")
    assert aws.usd_per_hour >= cheapest.usd_per_hour
    old = {"kind": "spot", "spot_age_days": 1e5}
    spot = accelsim.estimate("resnet-50", "h100-sxm-80gb", provider="aws", **old)
    assert spot.offer.endswith(":spot")


def test_a_comparison_is_a_sequence_of_pairs():
    comparison = accelsim.compare(["resnet-50"], ["t4", "l4"], batch=2)
    assert len(comparison) == 2
    assert [row.device for row in comparison] == ["t4", "l4"]
    assert comparison[1].estimate.batch == 2
    assert repr(comparison) == "<Comparison: 2 pairs, 2 estimated>"

"""The sentence an estimate carries: where its parameters come from, and how far its like was from
measurements.
"""

from __future__ import annotations

import io
import json
import re

import pytest
from rich.console import Console

from accelsim import catalog
from accelsim.cost.fitted import fitted_parameters
from accelsim.datafile import data_root
from accelsim.errors import UnsupportedOperatorError
from accelsim.planning.estimate import estimate
from accelsim.planning.evidence import Evidence, _evidence, quotable, shipped_evidence
from accelsim.report.accuracy_file import read_accuracy
from accelsim.report.tables import estimate_view


def group(profile, rows, median, p90, tier="fitted", **extra):
    figures = {"rows_answered": rows, "median_ape_fraction": median, "p90_ape_fraction": p90}
    return {"profile": profile, "tier": tier, **figures, **extra}


REPORT = {
    "suites": {
        "gpu-models": {
            "title": "whole transformers, eager FP32",
            "groups": [
                group("t4", 3, 0.04, 0.10, model="a"),
                group("t4", 1, 0.08, 0.30, model="b"),
                group("t4", 4, 0.05, 0.15, model="all", is_view=True),
                group("v100-pcie-32gb", 5, 0.5, 0.6, model="a"),
                group("t4", 0, None, None, model="refused"),
            ],
        },
        "cnn-gpus": {
            "groups": [
                group("gtx-1080", 9, 0.06, 0.2, "spec", model="ResNet-50"),
                group("m40-24gb", 2, 0.09, 0.31, "spec", model="ResNet-50"),
                group("xeon-platinum-8380", 2, 0.99, 0.99, "spec", model="ResNet-50"),
            ]
        },
        "mlperf-inference": {
            "groups": [
                group("t4", 2, 0.2, 0.3, model="bert-99"),
                group("t4", 8, 0.4, 0.5, model="resnet50"),
                group("t4", 10, 0.3, 0.45, model="all", is_view=True),
            ]
        },
        "gpu-operators": {"groups": [group("mi100", 1000, 0.10, 0.25, operator="bmm")]},
        "dpu": {
            "rows_answered": 40,
            "median_ape_fraction": 0.17,
            "p90_ape_fraction": 0.8,
            "groups": [],
        },
    }
}


def found(device, tier="fitted", relatives=(), *, device_class="gpu", is_convolutional=False):
    return _evidence(
        REPORT, device, device_class, tier, relatives, is_convolutional=is_convolutional
    )


def test_models_of_the_same_kind_on_the_same_device_come_first():
    rows = fitted_parameters("t4").rows
    assert found("t4").sentence == (
        f"fitted on {rows:,} measurements of this device; "
        "4 whole-model runs on it were within 5 % (median), 15 % (p90) [gpu-models: whole "
        "transformers, eager FP32]"
    )
    assert found("t4", is_convolutional=True).sentence.endswith(
        "8 whole-model runs on it were within 40 % (median), 50 % (p90) [mlperf-inference, "
        "resnet50]"
    )


def test_then_operators_of_the_device():
    assert found("mi100").sentence.endswith(
        "1,000 operators on it were within 10 % (median), 25 % (p90) [gpu-operators]"
    )


def test_then_other_devices_of_its_class_at_its_tier_as_ranges():
    other = found("rtx-4090", "spec", ("l40s",))
    assert other.sentence == (
        "class-wide parameters with the kernel surfaces of l40s; 11 whole-model runs on 2 "
        "other GPUs at this tier were "
        "within 6 to 9 % (median), 20 to 31 % (p90) [cnn-gpus]"
    )
    assert (other.scope, other.rows, other.devices, other.measured_rows) == (
        "other devices",
        11,
        2,
        0,
    )
    assert other.to_dict()["median_ape_fraction"] == [0.06, 0.09]
    assert found("t4", "spec").scope == "other devices"


def test_fpgas_are_told_of_boards_with_an_overlay_processor():
    words = found("kv260", "spec", device_class="fpga").sentence
    assert words.endswith(
        "40 whole-model runs on boards with a DPU were within 17 % (median), 80 % (p90) [dpu]"
    )


def test_a_slice_has_its_devices_evidence():
    assert found("t4@fraction=0.5") == found("t4")


def test_nothing_is_said_where_nothing_was_measured():
    nothing = found("groq-lpu-v1", "spec", device_class="asic")
    assert (
        nothing.sentence == "data sheet and class-wide parameters; nothing of its kind was measured"
    )
    assert (nothing.scope, nothing.suite) == ("none", None)


SHIPPED = read_accuracy(data_root() / "calibration" / "ACCURACY.json")
DEVICES = (
    *("h100-sxm-80gb", "t4", "l4", "rtx-4090", "mi300x", "gtx-1080"),
    *("tpu-v5e", "tpu-v1", "zcu104", "xeon-platinum-8480+", "epyc-7763"),
)


def reported(evidence: Evidence) -> bool:
    """Whether the figures stand in the shipped report as they are, each range's ends in one group
    of the suite.
    """
    entry = SHIPPED["suites"][evidence.suite]
    groups = [entry, *entry["groups"]]
    for name in ("median_ape_fraction", "p90_ape_fraction"):
        for edge in getattr(evidence, name):
            if not any(known[name] == edge for known in groups):
                return False
    return evidence.devices > 1 or any(known["rows_answered"] == evidence.rows for known in groups)


def test_the_evidence_that_ships_is_of_the_report_that_ships() -> None:
    assert quotable(SHIPPED) == shipped_evidence()


@pytest.mark.parametrize("device_class", ["cpu", "gpu", "fpga", "asic"])
@pytest.mark.parametrize("tier", ["spec", "fitted", "measured"])
def test_every_sentence_is_that_of_the_whole_report(device_class: str, tier: str) -> None:
    folder = data_root() / "device_profiles" / device_class
    for device in [path.stem for path in folder.glob("*.yaml")]:
        for convolutional in (False, True):
            asked = (device, device_class, tier, ())
            short, whole = (
                _evidence(report, *asked, is_convolutional=convolutional)
                for report in (shipped_evidence(), SHIPPED)
            )
            assert short == whole


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("model", ["resnet-50", "bert-base", "gpt2"])
def test_every_estimate_says_what_it_rests_on_and_says_it_truly(device: str, model: str) -> None:
    if device == "zcu104" and model != "resnet-50":
        with pytest.raises(UnsupportedOperatorError, match="embedding"):
            estimate(model, device)
        return
    result = estimate(model, device)
    evidence = result.evidence
    assert evidence.suite is None or reported(evidence)
    overlay = None if result.tier == "spec" else fitted_parameters(device)
    assert evidence.measured_rows == (overlay.rows if overlay else 0)
    assert ("fitted on" in evidence.sentence) == (result.tier != "spec")
    assert all(board in evidence.sentence for board in result.relatives[:3])
    assert json.loads(result.to_json())["evidence"] == evidence.to_dict()


def test_the_table_shows_the_sentence() -> None:
    result = estimate("bert-base", "l4")
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(estimate_view(result, catalog.device("l4")))
    text = re.sub(r"[\s│]+", " ", console.export_text())
    assert result.evidence.sentence in text
    assert "(tier spec)" in text

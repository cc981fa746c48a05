"""Parameters that rows had no part in: handed in by the scoreboard's tools, never shipped."""

from __future__ import annotations

import numpy as np
import pytest

from accelsim import catalog
from accelsim.catalog import stacks
from accelsim.estimation.evidence import residual_log_sigma, shipped_evidence
from accelsim.estimation.likeness import Setting
from accelsim.files.datafile import data_root, read_json, read_mapping
from accelsim.scoreboard import evidence_dict, validate
from accelsim.scoreboard import parameters as module
from accelsim.scoreboard.parameters import Parameters, parameters
from accelsim.scoreboard.tiers import choose
from tools.scoreboard import left_out
from tools.scoreboard.left_out import DATA, others_log_sigma, spreads_left_out


@pytest.fixture
def as_shipped(monkeypatch):
    """A wheel has no folder of such parameters."""
    monkeypatch.setattr(module, "_handed_in", [Parameters()])


def test_every_chip_of_the_class_data_has_a_set_without_it():
    names = read_mapping(data_root() / "calibration" / "class" / "gpu-boards.yaml")
    sets = {path.stem.removeprefix("gpu-without-") for path in DATA.glob("gpu-without-*")}
    assert sets == set(names["left_out_chips"])
    v100 = choose(catalog.device("v100-sxm2-16gb"), "spec")
    assert v100.note == "class-wide parameters fitted without v100"


def test_stacks_of_measured_boards_differ_without_them():
    asked = {"pytorch": "rtx-3090", "neuron": "inferentia1", "tflite-edgetpu": "edge-tpu"}
    for name, board in asked.items():
        whole = stacks.stack(name)
        device_class = catalog.device(board).device_class
        without = parameters().stack(whole, board)
        place = (device_class, "inference")
        assert without.ratios(*place) != whole.ratios(*place)
        assert without.log_sigmas(*place) != whole.log_sigmas(*place)
        assert parameters().stack(whole, "epyc-7763") == whole
    alone = parameters().stack(stacks.stack("tflite-edgetpu"), "edge-tpu")
    assert alone.ratios("asic", "inference") == {}  # the only chip of its stack


def test_spreads_without_a_board_are_of_the_others():
    shipped = shipped_evidence()["spreads"]
    without = parameters().spreads("t4")
    assert set(without) == {place for place, entry in shipped.items() if entry["origins"] > 1}
    place = "gpu inference fp32 transformer"
    assert without[place]["origins"] == shipped[place]["origins"] - 1
    assert without[place]["log_sigma"] != shipped[place]["log_sigma"]
    setting = Setting.of("inference", "fp32", "transformer")
    whole, others = (residual_log_sigma("gpu", setting, given) for given in (None, without))
    assert 0 < others != whole


@pytest.mark.usefixtures("as_shipped")
def test_what_ships_knows_of_no_board_left_out():
    device = catalog.device("v100-sxm2-16gb")
    assert "no set fitted without" in choose(device, "spec").note
    stack = stacks.stack("pytorch")
    assert parameters().stack(stack, device.name) == stack
    assert parameters().older_stack_ratio("torch7 cudnn 5.1", "gtx-1080") == 1.0
    assert parameters().spreads("t4") is None


def test_a_scoreboard_says_its_spreads_without_each_origin(monkeypatch, tmp_path):
    board = validate(["gpu-models"])
    spreads = evidence_dict(board)["spreads"]
    without = spreads_left_out(board)
    assert set(without) == {place for place, entry in spreads.items() if entry["origins"] > 1}
    for place, origins in without.items():
        assert len(origins) == spreads[place]["origins"]
    place = "gpu inference fp32 transformer"
    assert max(without[place].values()) >= spreads[place]["log_sigma"]
    monkeypatch.setattr(left_out, "DATA", tmp_path)
    parameters().publish(board)
    assert read_json(tmp_path / "spreads.json") == without


def test_a_networks_spread_is_that_of_the_others_and_wider_for_few():
    """Networks weigh the same, whatever their rows; two say less than ten (Student's t: 2.92 and
    1.81 for the normal's 1.645).
    """
    few = others_log_sigma([np.full(100, 0.1), np.array([0.2])])
    assert few == pytest.approx(np.sqrt((0.01 + 0.04) / 2) * 2.92 / 1.645, rel=0.02)
    assert others_log_sigma([np.array([-0.1])] * 10) == pytest.approx(0.1 * 1.81 / 1.645, rel=0.01)

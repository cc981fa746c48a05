"""Estimates of boards with fitted overlay rates give the figures that the table of published
throughput is scored with.
"""

import numpy as np
import pytest

import accelsim
from accelsim import catalog
from accelsim.cost.fpga.batch_engines import engine_times_s
from accelsim.cost.fpga.network import thread_times_s
from accelsim.cost.fpga.network_rates import board_rates, shipped_rates
from accelsim.errors import InvalidValueError
from tools.scoreboard.dpu_check import DpuRow
from tools.scoreboard.dpu_engines import engine_of, join_engines
from tools.scoreboard.dpu_networks import known_network
from tools.scoreboard.dpu_prediction import DpuRuns, join_runs

#: Spread of families left out of the fit, whose layers are published.
SINGLE_LOG_SIGMA = shipped_rates().log_sigma["single layers"]
BOARDS = [
    ("zcu102", "ZCU102 (0432055-05)", "DPUCZDX8G_B4096", 3, 281e6),
    ("zcu104", "ZCU104", "DPUCZDX8G_B4096", 2, 300e6),
    ("kv260", "Kria KV260", "DPUCZDX8G_B4096F", 1, 300e6),
    ("ultra96-v2", "Ultra96", "DPUCZDX8G_B1600", 1, 287e6),
]
NETWORKS = [
    ("inception-v3", "cf_inceptionv3_imagenet_299_299_11.4G", 299, 11.4e9),
    ("vgg-16", "tf_vgg16_imagenet_224_224_30.96G", 224, 30.96e9),
    ("efficientnet-b0", "tf2_efficientnet-b0_imagenet_224_224_0.78G", 224, 0.7716e9),
    ("mobilenet-v3-small", "tf2_mobilenetv3_imagenet_224_224_132M", 224, 0.132e9),
]


def suite_times(board, network):
    """One-thread and all-thread times as the suite `dpu` predicts them with the newest rates."""
    _, printed, core, cores, clock = board
    _, name, side, operations = network
    row = DpuRow("v3.0", printed, core, cores, clock, name, operations, 1.0, 1.0, 1e12)
    runs = DpuRuns(
        [row],
        [known_network(name, side, side, operations)],
        ["any"],
        np.array([float(side * side)]),
    )
    single, multi = thread_times_s(join_runs(runs), shipped_rates().of("v3.0"))
    return float(single[0]), float(multi[0])


@pytest.mark.parametrize("network", NETWORKS, ids=lambda n: n[0])
@pytest.mark.parametrize("board", BOARDS, ids=lambda b: b[0])
def test_estimates_are_the_suites_figures(board, network):
    single_s, multi_s = suite_times(board, network)
    alone = accelsim.estimate(network[0], board[0], batch=1)
    assert alone.tier == "fitted"
    assert alone.latency_s == pytest.approx(
        single_s, rel=5e-3
    )  # memory bandwidth of the Ultra96 is rounded in its profile
    if board[3] > 1:
        together = accelsim.estimate(network[0], board[0], batch=board[3])
        assert together.throughput_per_s == pytest.approx(1 / multi_s, rel=1e-9)
    else:
        assert alone.throughput_per_s == pytest.approx(1 / multi_s, rel=5e-3)


def test_intervals_are_those_of_families_left_out():
    alone = accelsim.estimate("vgg-16", "zcu102", batch=1)
    assert alone.latency_high_s / alone.latency_s == pytest.approx(
        np.exp(1.645 * SINGLE_LOG_SIGMA), rel=0.02
    )
    assert "Vitis AI v3.0" in alone.evidence.sentence
    assert (alone.evidence.scope, alone.evidence.suite) == ("overlays", "dpu, dpu-boards")


def test_rounds_of_images_and_monotone_batches():
    times = [accelsim.estimate("vgg-16", "zcu104", batch=b).latency_s for b in (1, 2, 4, 8)]
    assert times == sorted(times)
    rate = accelsim.estimate("vgg-16", "zcu104", batch=8).throughput_per_s
    assert rate == pytest.approx(accelsim.estimate("vgg-16", "zcu104", batch=2).throughput_per_s)


def test_other_boards_and_tier_spec_keep_class_wide_parameters():
    assert board_rates("vck5000") is None
    assert accelsim.estimate("vgg-16", "vck5000").tier == "spec"
    assert accelsim.estimate("vgg-16", "vck190", tier="spec").tier == "spec"
    assert accelsim.estimate("vgg-16", "zcu102", tier="spec").tier == "spec"
    with pytest.raises(InvalidValueError, match="no fitted overlay"):
        accelsim.estimate("vgg-16", "vck5000", tier="fitted")


@pytest.mark.parametrize("model", ["unet-3d", "vit-b-16"])
def test_networks_unlike_the_measured_ones_keep_class_wide_parameters(model):
    run = accelsim.estimate(model, "zcu102", host="core-i9-13900k")
    assert run.tier == "spec"
    assert run.latency_high_s > 1.4 * run.latency_s


def test_boards_with_rates_are_in_the_catalogue():
    for name in shipped_rates().host_hz:
        assert catalog.device(name).overlay.name.startswith("DPUCZDX8G")
    for overlay, engine in shipped_rates().engines.items():
        for name in engine.boards:
            assert catalog.device(name).overlay.name.replace("_", "-").startswith(overlay)


ENGINES = [
    ("alveo-u50", "Alveo U50", "DPUCAHX8H", 10, 247.5e6, 10),
    ("alveo-u280", "Alveo U280", "DPUCAHX8H", 14, 150e6, 14),
    ("alveo-u55c", "Alveo U55C", "DPUCAHX8H-DWC", 11, 300e6, 11),
    ("vck190", "VCK190", "DPUCVDX8G_C32B6", 1, 1.25e9, 6),
]


@pytest.mark.parametrize("network", NETWORKS[:3], ids=lambda n: n[0])
@pytest.mark.parametrize("board", ENGINES, ids=lambda b: b[0])
def test_estimates_of_batch_engines_are_the_suites_figures(board, network):
    device, printed, core, cores, clock, engines = board
    _, name, side, operations = network
    row = DpuRow("v3.0", printed, core, cores, clock, name, operations, np.nan, 1.0, np.nan)
    runs = DpuRuns(
        [row],
        [known_network(name, side, side, operations)],
        ["any"],
        np.array([float(side * side)]),
    )
    rates = shipped_rates().engines[engine_of(row)]
    _, multi = engine_times_s(join_engines(runs), rates.rates)
    full = accelsim.estimate(network[0], device, batch=engines)
    assert full.tier == "fitted"
    assert full.throughput_per_s == pytest.approx(1 / multi[0], rel=1e-9)
    assert "Vitis AI 1.2 to 3.0" in full.evidence.sentence
    width = np.log(full.latency_high_s / full.latency_s) / 1.645
    assert width > 0.95 * rates.multi_log_sigma


def test_a_batch_of_engines_runs_whole_or_not():
    one, six, seven = (accelsim.estimate("vgg-16", "vck190", batch=count) for count in (1, 6, 7))
    assert one.latency_s < six.latency_s < 1.5 * one.latency_s  # only the host's share grows
    assert seven.latency_s > 1.9 * six.latency_s * 7 / 12


def test_intervals_widen_with_the_share_of_gates():
    def width(model):
        run = accelsim.estimate(model, "kv260", batch=1)
        return np.log(run.latency_high_s / run.latency_s) / 1.645

    assert width("resnet-50") == pytest.approx(SINGLE_LOG_SIGMA, rel=0.1)
    assert 0.12 < width("efficientnet-b0") < np.hypot(SINGLE_LOG_SIGMA, 0.30)
    assert width("resnet-50") < width("mobilenet-v3-small") < width("efficientnet-b0")

"""Batch engines of DPU tables: which rows have them, clocks that neighbours contradict, laws, and
families left out.
"""

from dataclasses import replace

import numpy as np
import pytest

from accelsim.cost.fpga.batch_engines import engine_times_s
from accelsim.cost.fpga.network import DpuRates
from tools.scoreboard.dpu_check import DpuRow, stated_operations
from tools.scoreboard.dpu_engines import engine_of, fit_engine, join_engines, predict_engines
from tools.scoreboard.dpu_networks import known_network, network_family
from tools.scoreboard.dpu_prediction import DpuRuns

NAN = float("nan")
NETWORKS = [
    ("cf_resnet50_imagenet_224_224_7.7G", 224),
    ("cf_inceptionv1_imagenet_224_224_3.16G", 224),
    ("tf_vgg19_imagenet_224_224_39.28G", 224),
    ("tf_yolov3_voc_416_416_65.63G", 416),
    ("tf_inceptionv4_imagenet_299_299_24.55G", 299),
    ("tf_mobilenetv1_imagenet_224_224_1.14G", 224),
]


def row(network="cf_resnet50_imagenet_224_224_7.7G", **changes):
    base = DpuRow(
        "v2.0",
        "Alveo U50",
        "DPUCAHX8H",
        10,
        192.5e6,
        network,
        stated_operations(network),
        NAN,
        700.0,
        NAN,
    )
    return replace(base, **changes)


def runs_of(rows):
    sizes = dict(NETWORKS)
    networks = [
        known_network(r.network, sizes[r.network], sizes[r.network], r.operations) for r in rows
    ]
    pixels = np.array([float(sizes[r.network]) ** 2 for r in rows])
    return DpuRuns(rows, networks, [network_family(r.network) for r in rows], pixels)


@pytest.mark.parametrize(
    ("core", "overlay"),
    [
        ("DPUCAHX8H", "DPUCAHX8H"),
        ("DPUv3E", "DPUCAHX8H"),
        ("DPUCAHX8H DWC", "DPUCAHX8H-DWC"),
        ("DPUCAHX8H-DWC", "DPUCAHX8H-DWC"),
        ("DPUCVDX8G_C32B6", "DPUCVDX8G"),
        ("DPUCVDX8G_AIE", "DPUCVDX8G"),
        ("DPUCVDX8H", ""),
        ("DPUCAHX8L", ""),
        ("DPUCADF8H", ""),
        ("DPUCZDX8G_B4096", ""),
    ],
)
def test_overlay_of_a_core(core, overlay):
    assert engine_of(row(core=core, core_count=6)) == overlay


def multi_s(*rows):
    return engine_times_s(join_engines(runs_of(list(rows))), DpuRates(image_s=1e-9, pixel_s=1e-15))[
        1
    ]


def test_clocks_that_neighbouring_releases_contradict_are_theirs():
    slipped = row(
        release="v1.3.2", board="Alveo U280", core="DPUv3E", core_count=14, clock_hz=300e6
    )
    neighbour = replace(slipped, release="v1.4.1", clock_hz=150e6)
    assert multi_s(slipped) == pytest.approx(multi_s(neighbour))
    assert multi_s(replace(slipped, release="v1.4.1")) < multi_s(neighbour)


def test_the_vck190_has_six_engines_since_release_2_5():
    early = row(board="Versal", core="DPUCVDX8G_AIE", core_count=96, clock_hz=1.25e9)
    assert multi_s(early) == pytest.approx(2 * multi_s(replace(early, release="v2.5")))
    fabric = replace(early, release="v1.3.2", board="Versal VCK190", clock_hz=300e6)
    assert multi_s(fabric) == pytest.approx(multi_s(early))


def test_engines_and_clock_divide_the_time():
    slow, more, faster = multi_s(row(), row(core_count=20), row(clock_hz=385e6))
    assert more == pytest.approx(slow / 2)
    assert slow / 2 <= faster < slow


def test_one_thread_waits_for_the_host_beside_all_engines():
    single, multi = engine_times_s(join_engines(runs_of([row()])), DpuRates())
    assert single > multi


def table(rates):
    rows = [
        row(name, clock_hz=clock)
        for name, _ in NETWORKS
        for clock in (165e6, 192.5e6, 220e6, 247.5e6)
    ]
    times = engine_times_s(join_engines(runs_of(rows)), rates)[1]
    return runs_of([replace(r, multi_per_s=1 / t) for r, t in zip(rows, times, strict=True)])


def test_the_fit_finds_what_made_the_table():
    runs = table(replace(DpuRates(), image_s=1e-4, cycle_ratio=1.5, map_fraction=0.6, layer_s=2e-5))
    found = engine_times_s(join_engines(runs), fit_engine(runs))[1]
    assert found == pytest.approx(runs.times_s("multi"), rel=0.03)


def test_families_are_predicted_by_the_others():
    runs = table(replace(DpuRates(), image_s=1e-4, cycle_ratio=1.5))
    wrong = [
        replace(r, multi_per_s=r.multi_per_s / 4) if "vgg19" in r.network else r for r in runs.rows
    ]
    good = np.ones(len(wrong), dtype=bool)
    _, multi = predict_engines(replace(runs, rows=wrong), good)
    is_vgg = np.array(["vgg19" in r.network for r in wrong])
    assert multi[is_vgg] == pytest.approx(
        runs.times_s("multi")[is_vgg], rel=0.25
    )  # not the rates it was given
    others = [row(core="DPUCAHX8L"), row(core="DPUCZDX8G_B4096")]
    assert np.isnan(predict_engines(runs_of(others), np.ones(2, dtype=bool))[1]).all()

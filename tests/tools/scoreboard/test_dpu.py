"""DPU tables: known networks, row checks, the fit and its folds, and the suite on a small table of
published rows.
"""

import gzip
from dataclasses import replace

import numpy as np
import pytest
import yaml

from accelsim.cost.fpga.network import DpuBoards, DpuRates, join_networks, thread_times_s
from accelsim.cost.fpga.network_rates import shipped_rates
from accelsim.errors import InputError
from accelsim.files.datafile import data_root
from accelsim.scoreboard.data_folder import data_folder
from tools.refit.dpu import refit_dpu
from tools.scoreboard.dpu_check import DpuRow, check_rows, stated_operations
from tools.scoreboard.dpu_fit import family_folds, fit_rates
from tools.scoreboard.dpu_networks import known_network, network_family
from tools.scoreboard.dpu_prediction import DpuRuns, predict_fallback

NAN = float("nan")


def row(**changes):
    base = DpuRow(
        "v3.0", "ZCU104", "DPUCZDX8G_B4096", 2, 300e6, "tf_resnetv1_101_imagenet_224_224_14.4G",
        14.4e9, 50.0, 97.6, 2 * 1.2288e12,
    )  # fmt: skip
    return replace(base, **changes)


def test_names_tell_network_operations_and_family():
    assert stated_operations("cf_resnet50_imagenet_224_224_7.7G") == 7.7e9
    assert stated_operations("tf_mobilenetEdge1.0_imagenet_224_224_990M_1.3") == 990e6
    assert np.isnan(stated_operations("torchvision_inception_v3"))
    names = [
        "cf_resnet50_imagenet_224_224_7.7G",
        "pt_resnet50_imagenet_224_224_0.5_4.1G",
        "pt_resnet50_0.5_3.5",
    ]
    assert {network_family(name) for name in names} == {"resnet50"}


def test_networks_of_unknown_layers_take_time_for_operations_pixels_and_an_image():
    def times(operations, pixels):
        return operations / 1e12 + pixels * 4e-9 + 1e-3

    rng = np.random.default_rng(0)
    operations, pixels = 10 ** rng.uniform(8, 11, 120), 10 ** rng.uniform(4, 6, 120)
    operations[-1], pixels[-1] = 1e6, 1e3  # far below the others: a power law goes on falling
    rates = 1.0 / times(operations, pixels)
    rows = [
        row(network=f"tf_net{chr(97 + i % 24)}_set", operations=o, single_per_s=r)
        for i, (o, r) in enumerate(zip(operations.tolist(), rates.tolist(), strict=True))
    ]
    families = [network_family(r.network) for r in rows]
    runs = DpuRuns(rows, [None] * 120, families, pixels)
    predicted = predict_fallback(runs, "single", np.ones(120, dtype=bool))
    assert predicted == pytest.approx(times(operations, pixels), rel=0.02)


def test_multiply_adds_and_pruning_are_told_apart():
    halved = known_network("pt_resnet50_imagenet_224_224_4.1G", 224, 224, 4.1e9)
    assert halved.gives_multiply_adds
    pruned = "pt_resnet50_imagenet_224_224_0.5_4.1G"  # whose channels nobody publishes
    narrower = known_network("pt_resnet50_imagenet_224_224_5.3G", 224, 224, 5.3e9)
    assert known_network(pruned, 224, 224, 4.1e9).is_whole_of
    assert narrower.is_whole_of
    assert narrower.flop == halved.flop
    assert not halved.is_whole_of
    assert known_network("pt_unheard-of_net_10G", 224, 224, 1e10) is None
    assert known_network("cf_resnet50_imagenet_224_224_7.7G", 0, 0, 7.7e9) is None


@pytest.mark.parametrize(
    ("release", "name", "size", "single_per_s", "multi_per_s"),
    [
        ("v2.0", "cf_densebox_wider_320_320_0.49G", (320, 320), 432.2, 1654.7),
        ("v2.0", "cf_retinaface_wider_360_640_1.11G", (360, 640), 126.2, 541.9),
        ("v3.0", "pt_yolov4csp_coco_640_640_121G", (640, 640), 7.386, 20.21),
        ("v3.0", "pt_yolov5s6_coco_1280_1280_17G", (1280, 1280), 10.68, 26.09),
    ],
)
def test_networks_that_no_rate_was_fitted_to(release, name, size, single_per_s, multi_per_s):
    """Vitis AI model zoo, ZCU102: three cores at 281 MHz."""
    found = known_network(name, *size, stated_operations(name))
    placed = (np.array([values]) for values in ((8.0, 16.0, 16.0), 281e6, 3.0, 19.2e9, 1.0))
    networks = join_networks([found.layers], [found.task], DpuBoards(*placed))
    assert network_family(name) not in shipped_rates().families
    single_s, multi_s = thread_times_s(networks, shipped_rates().of(release))
    assert 1 / single_s[0] == pytest.approx(single_per_s, rel=0.2)
    assert 1 / multi_s[0] == pytest.approx(multi_per_s, rel=0.3)


@pytest.mark.parametrize(
    ("changes", "finding"),
    [
        ({"operations": NAN}, "ops_missing"),
        ({"operations": 7.2e9}, "ops_col_disagrees_with_name"),
        ({"multi_per_s": 200.0}, "implied_over_peak"),
        ({"multi_per_s": 30.0}, "thread_scaling_impossible"),
        ({"single_per_s": 10.0}, "thread_scaling_impossible"),
    ],
)
def test_bad_rows_are_named(changes, finding):
    assert check_rows([row()]) == [()]
    assert finding in check_rows([row(**changes)])[0]


def test_repeats_need_an_earlier_release():
    later = row(release="v3.5")
    assert check_rows([later, row()]) == [("repeat_of_earlier_release",), ()]
    assert check_rows([row(), row()])[1] == ("repeat_of_earlier_release",)


NAMES = [
    ("cf_resnet50_imagenet_224_224_7.7G", 224), ("cf_inceptionv1_imagenet_224_224_3.16G", 224),
    ("tf_mobilenetv1_imagenet_224_224_1.14G", 224), ("tf_vgg19_imagenet_224_224_39.28G", 224),
    ("tf_yolov3_voc_416_416_65.63G", 416), ("tf_inceptionv4_imagenet_299_299_24.55G", 299),
]  # fmt: skip


def joined(cores):
    networks = [known_network(name, size, size, stated_operations(name)) for name, size in NAMES]
    ones = np.ones(len(networks))
    parallelism = np.tile([8.0, 16.0, 16.0], (len(networks), 1))
    board = DpuBoards(
        parallelism,
        300e6 * ones,
        cores * ones,
        19.2e9 * ones,
        ones,
    )
    return join_networks([n.layers for n in networks], [n.task for n in networks], board)


def test_the_fit_finds_rates_that_made_the_times():
    true = replace(
        DpuRates(), cycle_ratio=1.35, map_fraction=0.25, layer_s=15e-6, depthwise_ratio=2.5
    )
    networks = joined(3.0)
    single, multi = thread_times_s(networks, true)
    again_single, again_multi = thread_times_s(networks, fit_rates(networks, single, multi))
    assert again_single == pytest.approx(single, rel=0.02)
    assert again_multi == pytest.approx(multi, rel=0.03)


def test_folds_keep_families_together_and_ignore_order():
    families = ["a", "b", "a", "c", "d", "b"]
    folds = family_folds(families, 3)
    assert folds[0] == folds[2]
    assert folds[1] == folds[5]
    assert dict(zip(families, folds, strict=True)) == dict(
        zip(families[::-1], family_folds(families[::-1], 3), strict=True)
    )


@pytest.fixture
def published(tmp_path):
    """A folder whose table holds what the layer model's first rates say, four releases on three
    boards, and one repeat.
    """
    header = (
        "release,board,core,n_cores,mhz,std_name,in_h,in_w,"
        "gops_per_image,fps_single,fps_multi,peak_gops\n"
    )
    lines = []
    for board, cores, mhz in (
        ("ZCU104", 2, 300),
        ("Kria KV260", 1, 300),
        ("ZCU102 (0432055-05)", 3, 281),
    ):
        single, _ = thread_times_s(joined(float(cores)), DpuRates())
        for (name, size), seconds in zip(NAMES, single, strict=True):
            for copy in range(4):
                scale = 1 + 0.01 * copy
                single, multi = scale / seconds, scale * max(cores * 0.95, 1.01) / seconds
                rates = f"{single},{multi},{cores * 4.096 * mhz}"
                place = f"v{copy + 1}.0,{board},DPUCZDX8G_B4096,{cores},{mhz}"
                lines.append(
                    f"{place},{name},{size},{size},{stated_operations(name) / 1e9},{rates}\n"
                )
    lines.append(lines[0].replace("v1.0", "v9.0"))
    (tmp_path / "fpga").mkdir()
    (tmp_path / "fpga" / "vitis_ai_dpu.csv.gz").write_bytes(
        gzip.compress((header + "".join(lines)).encode())
    )
    return tmp_path


def test_suite_scores_and_refuses(published):
    from accelsim.scoreboard import validate

    board = validate(["dpu"], published)
    assert board.problems == ()
    assert dict(board.skipped) == {}
    score = board.suites[0]
    assert score.figures.rows_answered > 100
    assert any("repeat_of_earlier_release" in reason for reason in score.refused)
    by_layers = [g for g in score.groups if g.group == "single layers" and g.figures.rows_answered]
    assert by_layers
    assert all(g.figures.median_ape_fraction < 0.2 for g in by_layers)


def test_a_refit_changes_rates_alone_and_keeps_to_them(published, tmp_path):
    before = (data_root() / "calibration" / "class" / "dpu.yaml").read_text()
    out = tmp_path / "class"
    first = refit_dpu(data_folder(published), out, lambda _line: None).read_text()
    changed = [
        line.split(":")[0].strip()
        for line, old in zip(first.splitlines(), before.splitlines(), strict=True)
        if line != old
    ]
    assert changed == [
        "families",
        "v2.0",
        "v3.0",
    ]  # the releases that table and file have in common
    assert refit_dpu(data_folder(published), out, lambda _line: None).read_text() == first
    rates = yaml.safe_load(first)["releases"]
    assert rates["v3.0"]["cycle_ratio"] == pytest.approx(DpuRates().cycle_ratio, rel=0.1)
    with pytest.raises(InputError, match="vitis_ai_dpu"):
        refit_dpu(data_folder(tmp_path / "class"), out, lambda _line: None)

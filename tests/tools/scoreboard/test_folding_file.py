"""FINN folding files: node cycles of published designs, rates, and refusals that name the layer."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelsim import catalog
from accelsim.cost.fpga.dataflow import node_cycles
from accelsim.cost.fpga.fpga_parameters import fpga_parameters
from accelsim.errors import InvalidValueError, ProfileError
from accelsim.files.datafile import data_root
from accelsim.hardware.sourced import Sourced
from tools.scoreboard.folding_file import (
    LayerFolding,
    folded_design,
    parse_folding,
    read_folding,
)
from tools.scoreboard.fpga_dataflow import dense_nodes, network_nodes

FOLDER = data_root() / "calibration" / "published" / "finn_folding"


def board(name="zcu104", clock_hz=250e6):
    return catalog.device(name).model_copy(
        update={"fabric_clock_hz": Sourced(value=clock_hz, source="test")}
    )


def test_node_cycles_equal_finns():
    # BNN-PYNQ bnn/src/network/cnvW1A1/hw/config.h, "Ext Latency" of each layer.
    foldings = read_folding(FOLDER / "cnv-w1a1.json")
    cycles = [
        node_cycles(n.mw, n.mh, n.vectors, f.pe, f.simd)
        for n, f in zip(network_nodes("cnv"), foldings, strict=True)
    ]
    assert cycles == [32400, 28224, 20736, 28800, 20736, 18432, 32768, 32768, 8192]


def test_radioml_runs_at_its_published_rate():
    # finn-examples build/vgg10-radioml/README.md: "At 250MHz, the accelerator reaches ~230k
    # frames/s".
    foldings = read_folding(FOLDER / "vgg10-radioml.json")
    design = folded_design(network_nodes("radioml"), foldings, board(), fpga_parameters())
    assert design.fps == pytest.approx(230e3, rel=0.07)
    assert design.cycles.max() == 1024


def test_cnv_runs_at_its_measured_rate():
    # BNN-PYNQ notebooks/CNV-QNN_Cifar10_Testset.ipynb: 9,149.98 images per second. The notebook
    # does not state the clock; 300 MHz is assumed, so this checks the slowest node only if that is
    # right.
    foldings = read_folding(FOLDER / "cnv-w1a1.json")
    design = folded_design(
        network_nodes("cnv"), foldings, board("zcu104", 300e6), fpga_parameters()
    )
    assert design.fps == pytest.approx(9149.98, rel=0.01)


# Umuroglu et al., FINN, FPGA 2017, table 3 and abstract: images per second, first image's latency,
# lookup tables, 200 MHz.
@pytest.mark.parametrize(
    ("folding", "times", "fps", "latency_s", "latency_error", "lut_count", "lut_error"),
    [
        ("cnv-max", 4, 21_906, 283e-6, 0.01, 46_253, 0.01),
        ("cnv-fix", 2, 11_600, 550e-6, 0.03, 29_274, 0.2),
    ],
)
def test_both_cnv_designs_of_the_paper(
    folding, times, fps, latency_s, latency_error, lut_count, lut_error
):
    base, scaled = (read_folding(FOLDER / f"{name}.json") for name in ("cnv-w1a1", folding))
    assert [b.pe * b.simd * times for b in base] == [f.pe * f.simd for f in scaled]
    design = folded_design(
        network_nodes("cnv", holds_maps=True), scaled, board("zcu102", 200e6), fpga_parameters()
    )
    assert design.fps == pytest.approx(fps, rel=0.002)
    assert design.latency_s == pytest.approx(latency_s, rel=latency_error)
    assert design.lut_count == pytest.approx(lut_count, rel=lut_error)


def test_a_window_generator_that_holds_a_map_loads_it_first():
    held, lines = (network_nodes("cnv", holds_maps=holds)[0] for holds in (True, False))
    folding = (LayerFolding("MVAU_0", 64, 3),)
    slow, fast = (
        folded_design([node], folding, board(clock_hz=1e6), fpga_parameters())
        for node in (held, lines)
    )
    assert (slow.cycles[0], fast.cycles[0]) == (32 * 32 + 8100, 8100)
    assert slow.latency_s - fast.latency_s == pytest.approx(32 * 32 / 1e6)


def test_layer_names_of_all_versions_in_numeric_order():
    data = {
        "Defaults": {},
        "MVAU_rtl_10": {"PE": 1, "SIMD": 2},
        "MatrixVectorActivation_2": {"PE": 3, "SIMD": 4},
        "Thresholding_rtl_0": {"PE": 16},
        "StreamingFCLayer_Batch_1": {"PE": 5, "SIMD": 6, "mem_mode": "const"},
    }
    assert [(f.pe, f.simd) for f in parse_folding(data, "here")] == [(5, 6), (3, 4), (1, 2)]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({}, ["no matrix layer"]),
        ({"MVAU_0": {"PE": 0, "SIMD": 1}}, ["MVAU_0.PE", "1 to"]),
        ({"MVAU_0": {"PE": 4}}, ["MVAU_0.SIMD", "None"]),
        ({"MVAU_0": {"PE": True, "SIMD": 1.5}}, ["MVAU_0.PE", "MVAU_0.SIMD"]),
        ({"MVAU_0": 7}, ["MVAU_0", "mapping"]),
        ({"MVAU_0": {"PE": 10**9, "SIMD": 1}}, ["MVAU_0.PE"]),
    ],
)
def test_malformed_files_name_the_layer(data, words, tmp_path):
    path = tmp_path / "folding.json"
    path.write_text(json.dumps(data))
    with pytest.raises(ProfileError) as refusal:
        read_folding(path)
    for word in words:
        assert word in str(refusal.value)


def test_foldings_must_fit_their_network():
    nodes = dense_nodes((784, 256, 10), 1)
    wrong_count = parse_folding({"MVAU_0": {"PE": 1, "SIMD": 1}}, "here")
    with pytest.raises(InvalidValueError, match="folding layers"):
        folded_design(nodes, wrong_count, board(), fpga_parameters())
    no_divisor = parse_folding(
        {"MVAU_0": {"PE": 3, "SIMD": 1}, "MVAU_1": {"PE": 1, "SIMD": 1}}, "here"
    )
    with pytest.raises(InvalidValueError, match=r"MVAU_0\.PE.*divisor of 256"):
        folded_design(nodes, no_divisor, board(), fpga_parameters())


LAYER_NAMES = st.text(max_size=12) | st.sampled_from(["MVAU_0", "MVAU_1"])
ATTRIBUTES = st.dictionaries(st.sampled_from(["PE", "SIMD"]), st.integers() | st.text(max_size=3))


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(LAYER_NAMES, st.none() | st.integers() | ATTRIBUTES, max_size=4))
def test_any_mapping_is_read_or_refused(data):
    try:
        foldings = parse_folding(data, "here")
    except ProfileError:
        return
    assert all(f.pe >= 1 and f.simd >= 1 for f in foldings)

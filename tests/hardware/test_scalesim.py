"""SCALE-Sim's files: topologies and configurations, and what is wrong with bad ones."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelsim.dtype import Dtype
from accelsim.errors import AccelsimError, InvalidValueError, ProfileError
from accelsim.exploration.architecture import design_grid, design_of_config, sweep_architectures
from accelsim.hardware.profile import Dataflow
from accelsim.hardware.scalesim import parse_scalesim_config, read_scalesim_config
from accelsim.workloads.operator import OperatorKind
from accelsim.workloads.scalesim import parse_scalesim_topology, read_scalesim_topology

CONV = """Layer, IFMAP Height, IFMAP Width, Filter Height, Filter Width, Channels, Filters, Strides,
Conv1,224,224,7,7,3,64,2,
Conv2DP,58,58,3,3,64,1,1,
Conv3,28,28,1,1,128,256,1,2:4,
"""
GEMM = "Layer, M, N, K,\nQK,128,64,256,\nFC,1,1000,512,\n"
CONFIG = """[general]
run_name = "scale_example"
[architecture_presets]
ArrayHeight: 32
ArrayWidth: 64
IfmapSramSzkB: 1024
FilterSramSzkB: 512
OfmapSramSzkB: 256
IfmapOffset: 0
Dataflow : ws
Bandwidth : 10,20,30
[run_presets]
InterfaceBandwidth: USER
"""


def test_convolutions_have_the_dimensions_of_the_file():
    graph = parse_scalesim_topology(CONV)
    assert graph.name == ("Conv1", "Conv2DP", "Conv3")
    first, depthwise, last = (graph.dimensions_of(row) for row in range(3))
    assert (first["out_h"], first["out_w"], first["channels_out"], first["stride"]) == (
        109,
        109,
        64,
        2,
    )
    assert (depthwise["groups"], depthwise["channels_out"], depthwise["out_h"]) == (64, 64, 56)
    assert last["kernel_h"] == 1
    assert graph.flop[0] == 2 * 109 * 109 * 64 * 7 * 7 * 3
    assert graph.flop[1] == 2 * 56 * 56 * 64 * 9


def test_gemm_files_are_recognised_by_their_header():
    graph = parse_scalesim_topology(GEMM)
    assert set(graph.kind.tolist()) == {int(OperatorKind.GEMM)}
    assert graph.dimensions_of(0) == {"batch": 1, "m": 128, "n": 64, "k": 256}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no layers"),
        ("Layer,M,N,K,\n", "no layers"),
        (CONV.replace("64,2,\n", "64,\n", 1), "line 2, layer 'Conv1'"),
        (CONV.replace("224,224", "224,x", 1), "input width: 'x'"),
        (CONV.replace("224,224", "0,224", 1), "input height: '0'"),
        (CONV.replace("58,58", "2,58"), "larger than its input"),
        (GEMM.replace("128,64", "128,99999999999"), "expected a whole number"),
        (GEMM.replace("1,1000,512", "1,1000"), "layer 'FC'"),
    ],
)
def test_malformed_topologies_name_the_line(text, said):
    with pytest.raises(ProfileError, match="topology"):
        parse_scalesim_topology(text)
    with pytest.raises(ProfileError) as caught:
        parse_scalesim_topology(text)
    assert said in str(caught.value)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=200))
def test_any_text_is_a_graph_or_a_clear_error(text):
    for parse in (parse_scalesim_topology, parse_scalesim_config):
        with contextlib.suppress(AccelsimError):
            parse(text)


def test_configurations_become_designs_that_cost_a_topology():
    config = parse_scalesim_config(CONFIG)
    assert (config.rows, config.columns, config.dataflow) == (32, 64, Dataflow.WEIGHT_STATIONARY)
    assert config.words_per_cycle == 10
    design = design_of_config(config, Dtype.INT8, clock_hz=1e9)
    assert design.pads_bytes == (2**20, 2**19, 2**18)
    assert design.bandwidth_bytes_per_s == 10e9
    assert sweep_architectures(parse_scalesim_topology(GEMM), [design]).points[0].latency_s > 0


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("ArrayHeight: 32", "ArrayHeight: 0", "arrayheight: '0'"),
        ("ArrayWidth: 64\n", "", "arraywidth"),
        ("Dataflow : ws", "Dataflow : rs", "expected os, ws or is"),
        ("10,20,30", "10,fast", "Bandwidth"),
        ("USER", "MAYBE", "USER or CALC"),
        ("[architecture_presets]", "[array]", "architecture_presets"),
        ("[general]", "general", "not a configuration file"),
    ],
)
def test_malformed_configurations_name_the_key(old, new, said):
    with pytest.raises(ProfileError) as caught:
        parse_scalesim_config(CONFIG.replace(old, new))
    assert said in str(caught.value)


def test_designs_need_a_bandwidth_and_a_clock():
    calc = parse_scalesim_config(CONFIG.replace("USER", "CALC"))
    assert calc.words_per_cycle is None
    with pytest.raises(InvalidValueError, match="CALC"):
        design_of_config(calc, Dtype.INT8)
    with pytest.raises(InvalidValueError, match="clock"):
        design_of_config(calc, Dtype.INT8, clock_hz=0, bandwidth_bytes_per_s=1e9)


def test_files_are_read_and_unreadable_ones_refused(tmp_path):
    (tmp_path / "net.csv").write_text(GEMM)
    (tmp_path / "chip.cfg").write_text(CONFIG)
    graph = read_scalesim_topology(tmp_path / "net.csv")
    designs = design_grid([(32, 64)], [Dataflow.WEIGHT_STATIONARY], [(2**20, 2**19, 2**18)], [1e10])
    assert sweep_architectures(graph, designs).points[0].latency_s > 0
    assert read_scalesim_config(tmp_path / "chip.cfg").rows == 32
    (tmp_path / "bad.csv").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "huge.csv").write_text("a," * 600_000)
    for name in ("bad.csv", "huge.csv", "missing.csv"):
        with pytest.raises(ProfileError, match=name):
            read_scalesim_topology(tmp_path / name)
    with pytest.raises(ProfileError, match=r"bad\.csv"):
        read_scalesim_config(tmp_path / "bad.csv")

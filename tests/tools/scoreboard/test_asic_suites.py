"""Suites of published ASIC figures: systolic, tpu-v1 and eyeriss, on a few rows carried in with
their source.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from accelsim import catalog
from accelsim.catalog.workloads import workload
from accelsim.estimation.options import RunOptions, RunShape
from accelsim.estimation.passes import run_passes
from accelsim.estimation.resolution import resolve
from accelsim.estimation.simulate import simulated
from accelsim.scoreboard import row_records, validate
from accelsim.scoreboard.parameters import parameters
from tools.scoreboard.tpu_v1 import (
    APPLICATIONS,
    application_graph,
    application_tops,
    from_counters,
)

# SCALE-Sim v2 (22f88b17), CALC mode: two layers as its reports print them.
SYSTOLIC = """simulator,mode,topology,layer,dataflow,M,N,K,rows,cols,ifmap_kb,filter_kb,ofmap_kb,\
demand_rows,mapping_eff_pct,compute_util_pct,ifmap_sram_reads,filter_sram_reads,\
ofmap_sram_writes,total_cycles,stall_cycles,overall_util_pct
v2,full,t.csv,QK,os,128,64,128,128,128,6144,6144,2048,382,50.0,16.75392670157068,16384,8192,8448,381,0,16.79790026246719
v2,full,t.csv,QK,ws,128,64,128,128,128,6144,6144,2048,510,50.0,10.047095761381476,16384,8192,8192,509,0,12.573673870333987
"""
# Jouppi et al., ISCA 2017, tables 1, 3 and 6; table 2; figure 9.
APPS = """app,layers,weights_M,ops_per_weight_byte,batch,array_active_pct,useful_macs_pct,\
tops_achieved,gpu_rel_cpu,tpu_rel_cpu
MLP0,5,20,200,200,12.7,12.5,12.3,2.5,41.0
LSTM0,58,52,64,64,8.2,8.2,3.7,0.4,3.5
CNN0,16,8,2888,8,78.2,78.2,86.0,1.6,40.3
"""
PLATFORMS = """device,dies_per_server,server_tdp_w,busy_w_per_die
Haswell E5-2699 v3,2,504,145
NVIDIA K80 (one die),8,1838,98
TPUv1,4,861,40
"""
PER_WATT = """metric,mean,gpu_vs_cpu,tpu_vs_cpu
total,geo,1.2,17
total,weighted,2.1,34
incremental,geo,1.7,41
incremental,weighted,2.9,83
"""
# Chen et al., JSSC 52(1), 2017, table V.
EYERISS = """net,batch,layer,power_mw,total_latency_ms,processing_latency_ms,active_pes,\
zero_ifmap_pct,glb_access_mb,dram_access_mb
AlexNet,4,CONV1,332,20.9,16.5,154,0.01,18.5,5.0
AlexNet,4,CONV2,288,41.9,39.2,135,38.7,77.6,4.0
AlexNet,4,CONV3,266,23.6,21.8,156,72.5,50.2,3.0
AlexNet,4,CONV4,235,18.4,16.0,156,79.3,37.4,2.1
AlexNet,4,CONV5,236,10.5,10.0,156,77.6,24.9,1.3
AlexNet,4,TOTAL,278,115.3,103.5,148,57.53,208.5,15.4
"""


@pytest.fixture
def folder(tmp_path):
    for name, text in {
        "systolic/scalesim_v2.csv": SYSTOLIC,
        "asic/tpuv1_apps.csv": APPS,
        "asic/tpuv1_platforms.csv": PLATFORMS,
        "asic/tpuv1_perf_per_watt.csv": PER_WATT,
        "asic/eyeriss.csv": EYERISS,
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def score(folder, name):
    (found,) = validate([name], folder).suites
    return found, found.suite.findings(found.rows)


def errors(found, quantity):
    return {
        str(label): abs(float(predicted / measured) - 1)
        for part in found.rows
        for group, label, predicted, measured in zip(
            part.group, part.label, part.predicted_s, part.measured_s, strict=True
        )
        if group == quantity
    }


def test_systolic_rows_are_equal_and_a_changed_one_is_found(folder):
    found, findings = score(folder, "systolic")
    assert found.figures.rows_answered == 2
    assert findings["mismatches"] == 0
    (folder / "systolic/scalesim_v2.csv").write_text(SYSTOLIC.replace("382", "383"))
    _, findings = score(folder, "systolic")
    assert findings["mismatches"] == findings["quantities"]["cycles"]["mismatches"] == 1


def test_tpu_v1_applications_within_eight_percent(folder):
    found, findings = score(folder, "tpu-v1")
    assert max(errors(found, "TOPS").values()) <= 0.08
    assert max(errors(found, "TOPS with array fill").values()) <= 0.10
    assert set(findings["predicted_tops"]) == set(APPLICATIONS)


def test_tpu_v1_performance_per_watt_within_fifteen_percent(folder):
    found, _ = score(folder, "tpu-v1")
    for chip in ("TPU", "GPU"):
        figures = errors(found, f"{chip} performance per watt over CPU")
        assert len(figures) == 4
        assert max(figures.values()) <= 0.15


def test_an_application_without_published_layers_is_refused_but_for_its_counters(folder):
    made_up = "CNN1,89,100,1750,32,50.0,20.0,10.0,,\n"
    (folder / "asic/tpuv1_apps.csv").write_text(APPS + made_up)
    found, _ = score(folder, "tpu-v1")
    assert math.isnan(errors(found, "TOPS")["CNN1"])
    assert errors(found, "TOPS from counters")["CNN1"] == pytest.approx(0.2 * 92 / 10 - 1)
    assert any("not published" in reason for reason in found.refused)


def test_tpu_v1_busy_power_follows_from_the_energy_of_its_parts(folder):
    found, findings = score(folder, "tpu-v1")
    assert errors(found, "power of a busy die")["fleet mix"] <= 0.10
    assert all(28 < power <= 75 for power in findings["predicted_power_w"].values())
    (folder / "asic/tpuv1_platforms.csv").write_text(PLATFORMS.replace("861,40", "861,60"))
    found, _ = score(folder, "tpu-v1")
    assert errors(found, "power of a busy die")["fleet mix"] > 0.2


@pytest.mark.parametrize("name", ["MLP0", "MLP1", "LSTM0", "LSTM1"])
def test_applications_wait_for_weights_and_stay_below_their_roofline(name):
    # Jouppi et al., ISCA 2017, figure 5: 34 GB/s of weight memory bounds the MLPs and LSTMs.
    app = APPLICATIONS[name]
    roofline_tops = 2 * app.batch * 34e9 / 1e12
    assert 0.75 * roofline_tops < application_tops(app) < roofline_tops


@pytest.mark.parametrize(
    ("name", "weights", "intensity"), [("MLP0", 20e6, 200), ("MLP1", 5e6, 168), ("LSTM0", 52e6, 64)]
)
def test_applications_have_the_published_weights_and_intensity(name, weights, intensity):
    graph = application_graph(APPLICATIONS[name])
    assert graph.weight_bytes.sum() == pytest.approx(weights, rel=0.01)
    assert graph.model_flop / 2 / graph.weight_bytes.sum() == pytest.approx(intensity, rel=1e-9)


def test_cnn0_has_the_published_intensity_and_a_full_array():
    graph = application_graph(APPLICATIONS["CNN0"])
    assert graph.model_flop / 2 / graph.weight_bytes.sum() == pytest.approx(2888)


def test_counters_contradict_cnn0s_own_tops():
    assert from_counters(0.782, "CNN0") == pytest.approx(71.9, abs=0.1)  # 86.0 in the same table
    assert from_counters(0.082, "LSTM0") == pytest.approx(
        3.7, rel=0.08
    )  # half rate: 16-bit activations


NETWORKS_TABLE = """device,model,batch,programs,seq_len,image_size,precision,\
seconds_per_sample,source
edge-tpu,resnet-50,1,1,0,299,int8,0.056,Coral
inferentia1,bert-base,16,4,128,0,bf16,0.000947,AWS
inferentia1,hubert-base,16,4,128,0,bf16,0.000947,AWS
inferentia1,bert-base,16,2,128,0,bf16,0.000947,AWS
abacus,bert-base,16,4,128,0,bf16,0.000947,AWS
"""


def test_networks_run_in_the_programs_and_batch_of_their_row(folder):
    (folder / "asic/networks.csv").write_text(NETWORKS_TABLE)
    board = validate(["asic-networks"], folder, "spec")
    (found,) = board.suites
    refused = {"no workload hubert-base", "no device abacus", "2 programs on 4 cores"}
    assert found.refused == dict.fromkeys(refused, 1)
    resnet, bert = (r for r in row_records(board) if not r["refusal"])
    run = unseen("resnet-50", "edge-tpu", image_size=299)  # the input's transfer is in both
    assert resnet["predicted_s"] == pytest.approx(run.latency_s)
    many = unseen("bert-base", "inferentia1", batch=16, seq_len=128)
    assert bert["predicted_s"] == pytest.approx(many.period_s)


def unseen(model, chip, **shape):
    """A run as one asks for it, with the ratios of other chips."""
    options = RunOptions(shape=RunShape(**shape))
    run = resolve(workload(model), catalog.device(chip), options)
    others = parameters()
    run = replace(run, stack=others.stack(run.stack, chip), spreads=others.spreads(chip))
    return simulated(run, run_passes(run), None)


def test_the_networks_that_ship_are_answered_within_a_fifth():
    (found,) = validate(["asic-networks"]).suites
    assert found.figures.rows_answered == 57
    assert not found.refused
    assert found.figures.mape_fraction < 0.2
    assert found.figures.median_ape_fraction < 0.15
    assert abs(found.figures.bias_fraction) < 0.1
    assert found.figures.interval_coverage_fraction > 0.85

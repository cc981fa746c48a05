"""Suites over small tables: what is asked, answered, refused, and that layers, units and dimensions
are right.
"""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import tools.scoreboard  # noqa: F401  (its suites, too)
from accelsim import catalog
from accelsim.cost.gpu import GpuParameters, cost_gpu
from accelsim.dtype import Dtype
from accelsim.errors import InputError, InvalidValueError, MissingDependencyError, UnknownNameError
from accelsim.estimation.estimate import estimate
from accelsim.hardware.sourced import Sourced
from accelsim.scoreboard import (
    markdown,
    register_suite,
    row_records,
    scoreboard_dict,
    suite,
    suites,
    validate,
)
from accelsim.scoreboard import score as score_module
from accelsim.scoreboard import tiers as tier_module
from accelsim.scoreboard.names import device_names, device_of, gpu_of, model_names, workload_of
from accelsim.scoreboard.split import held_out_mask, held_out_rows
from tools.scoreboard.operator_columns import gemm_graph

GEMM = "op,device,split,b,m,n,k,latency_ms\n"
REQUIRED = {
    "suites": {
        "tier",
        "rows_asked",
        "rows_answered",
        "refused",
        "mape_fraction",
        "median_ape_fraction",
    },
    "figures": {
        "p90_ape_fraction",
        "max_ape_fraction",
        "bias_fraction",
        "kendall_tau",
        "interval_coverage_fraction",
    },
}

#: A list of operators of some other workload.
OTHER_LIST = "desc,phase,op,repeat,b,m,n,k,h,bytes\nother-inf-1-1,fw,relu,1,8,0,0,0,8,0\n"


# -- names


@pytest.mark.parametrize("name", sorted(device_names()))
def test_every_device_alias_names_a_profile(name):
    assert device_of(name).name == device_names()[name]


@pytest.mark.parametrize(
    ("name", "profile"),
    [
        ("H100", "h100-sxm-80gb"),
        ("L4", "l4"),
        ("A100-80", "a100-pcie-80gb"),
        ("MI210", "mi210"),
        ("A100-40", "a100-pcie-40gb"),
    ],
)
def test_devices_without_shared_rows_are_known(name, profile):
    assert gpu_of(name).name == profile


def test_mi250_rows_are_of_one_die():
    die, card = gpu_of("MI250"), catalog.device("mi250")
    assert die.sm_count.value * 2 == card.sm_count.value
    assert die.memory_bandwidth_bytes_per_s * 2 == card.memory_bandwidth_bytes_per_s


def test_unknown_names_are_refused():
    with pytest.raises(UnknownNameError, match="Unknown device 'B9000'"):
        device_of("B9000")
    with pytest.raises(UnknownNameError, match="GPU"):
        gpu_of("Dual Xeon E5-2630 v3")
    assert workload_of("Inception-V1").name == model_names()["inception-v1"]


# -- the split


def test_the_split_keeps_its_share_and_goes_by_shape():
    labels = [f"bmm 1 {m} {n} 64" for m in range(60) for n in range(60)]
    mask = held_out_mask(labels)
    assert mask.mean() == pytest.approx(0.2, abs=0.03)
    assert (held_out_mask(labels[::-1]) == mask[::-1]).all()
    rows = [np.repeat(np.arange(60.0), 60), np.tile(np.arange(60.0), 60)]
    kept = held_out_rows(rows)
    assert kept.mean() == pytest.approx(0.2, abs=0.03)
    assert (held_out_rows([c[::-1] for c in rows]) == kept[::-1]).all()
    assert not held_out_mask(labels, 0).any()
    assert held_out_rows(rows, 1).all()


# -- operators


def test_operator_rows_are_the_cost_models_times(folder):
    rows = "bmm,V100,train,8,256,64,512,0.2\nlinear,V100,train,1,4096,1024,2048,1.5\n"
    board = validate(["gpu-operators"], folder({"gpu_kernels/ops_gemm.csv": GEMM + rows}), "spec")
    (score,) = board.suites
    records = list(row_records(board))
    graph = gemm_graph(
        np.array([8.0, 1.0]),
        np.array([256.0, 4096.0]),
        np.array([512.0, 2048.0]),
        np.array([64.0, 1024.0]),
        Dtype.FP32,
        batched=np.array([True, False]),
    )
    left_out = tier_module.choose(gpu_of("V100"), "spec").parameters  # no row of a V100 shaped them
    costs = cost_gpu(graph, gpu_of("V100"), parameters=replace(left_out, is_isolated=True))
    shown = np.maximum(costs.time_s - left_out.dispatch.trailing_s, 0.0)
    assert [r["predicted_s"] for r in records] == pytest.approx((costs.dispatch_s + shown).tolist())
    assert [r["measured_s"] for r in records] == [2e-4, 1.5e-3]
    assert score.rows_asked == score.figures.rows_answered == 2


def test_unknown_devices_are_named_and_other_rows_scored(folder):
    rows = "bmm,V100,train,8,256,64,512,0.2\nbmm,B9000,train,8,256,64,512,0.2\n"
    board = validate(["gpu-operators"], folder({"gpu_kernels/ops_gemm.csv": GEMM + rows}), "spec")
    (problem,) = board.problems
    assert (problem.file, problem.row, problem.column) == ("gpu_kernels/ops_gemm.csv", 3, "device")
    found = scoreboard_dict(board)["suites"]["gpu-operators"]
    assert (found["rows_asked"], found["rows_answered"]) == (2, 1)
    assert found["refused"] == {"unknown device B9000": 1}


def test_a_broken_file_does_not_stop_the_others(folder):
    vec = "op,device,split,b,h,latency\nadd,T4,test,64,64,0.03\n"
    gemm = GEMM + "bmm,T4,test,8,256,64,512,0.4\nbmm,T4,test,8,256,64,256,-0.4\n"
    board = validate(
        ["gpu-operators"],
        folder({"gpu_kernels/ops_gemm.csv": gemm, "gpu_kernels/ops_vec.csv": vec}),
        "spec",
    )
    assert {p.reason for p in board.problems} == {"wrong unit", "time not above 0"}
    (score,) = board.suites
    assert score.rows_asked == 2
    assert score.figures.rows_answered == 1
    assert score.refused == {"bad data: time not above 0": 1}


def test_tiers_without_parameters_refuse_by_name(folder):
    data = folder({"gpu_kernels/ops_gemm.csv": GEMM + "bmm,P4,test,8,256,64,512,0.4\n"})
    (score,) = validate(["gpu-operators"], data, "measured").suites
    assert score.refused == {"no measured table of p4": 1}
    assert score.figures.mape_fraction is None
    with pytest.raises(InvalidValueError, match="tier"):
        tier_module.tier_name("guess")


def test_fitted_rows_that_a_fit_may_have_seen_are_not_scored(folder, monkeypatch):
    shapes = [f"bmm,P4,test,8,{m},64,512,0.4\n" for m in range(64, 164)]
    data = folder({"gpu_kernels/ops_gemm.csv": GEMM + "".join(shapes)})
    choice = tier_module.Choice("fitted", GpuParameters.class_wide(), saw_operators=True)
    monkeypatch.setitem(tier_module._CHOICES, "fitted", lambda _device: choice)
    (score,) = validate(["gpu-operators"], data, "fitted").suites
    kept = held_out_mask([f"bmm 8 {m} 64 512" for m in range(64, 164)])
    assert score.rows_asked == score.figures.rows_answered == kept.sum()
    assert score.rows_used_in_fit == 100 - kept.sum()
    assert score.tier == "fitted"


# -- whole models


@pytest.fixture(scope="module")
def published():
    return validate(["gpu-models", "cnn-gpus"], None, "spec")


def test_published_tables_answer_every_row_below_the_roofline(published):
    assert published.problems == ()
    for score in published.suites:
        assert score.refused == {}
        assert score.figures.rows_answered == score.rows_asked
        assert score.figures.mape_fraction < score.figures.roofline_mape_fraction


def test_report_has_the_keys_others_read(published):
    report = json.loads(json.dumps(scoreboard_dict(published)))
    for found in report["suites"].values():
        assert REQUIRED["suites"] | REQUIRED["figures"] | {
            "roofline_mape_fraction",
            "groups",
        } <= set(found)
        for group in found["groups"]:
            assert {"device", "model"} | REQUIRED["figures"] <= set(group)
        views = [group for group in found["groups"] if not group.get("is_view")]
        assert sum(group["rows_asked"] for group in views) == found["rows_asked"]
    text = markdown(report)
    assert "| gpu-models |" in text
    assert all(knee["measured_batch"] >= 1 for knee in report["suites"]["cnn-gpus"]["knees"])
    assert len(report["suites"]["cnn-gpus"]["knees"]) == 4  # two devices, two precisions


def test_a_run_without_its_operator_list_is_refused(folder):
    labels = "device,model,mode,seq,batch,e2e_ms\nT4,bert,inf,128,4,10\n"
    data = folder(
        {"gpu_kernels/e2e_labels.csv": labels, "gpu_kernels/e2e_opgraphs.csv": OTHER_LIST}
    )
    (score,) = validate(["gpu-models"], data, "spec").suites
    assert score.refused == {"no operator list": 1}


def test_doubling_a_layer_count_nearly_doubles_the_time(folder):
    labels = "device,model,mode,seq,batch,e2e_ms\nT4,a,inf,1,1,10\nT4,b,inf,1,1,10\n"
    body = "fw,linear,{},1,4096,4096,4096,0,0\n"
    lists = (
        "desc,phase,op,repeat,b,m,n,k,h,bytes\na-inf-1-1,"
        + body.format(8)
        + "b-inf-1-1,"
        + body.format(16)
    )
    data = folder({"gpu_kernels/e2e_labels.csv": labels, "gpu_kernels/e2e_opgraphs.csv": lists})
    first, second = (r["predicted_s"] for r in row_records(validate(["gpu-models"], data, "spec")))
    assert second == pytest.approx(2 * first, rel=0.01)


MLPERF = (
    "round,submitter,system,accelerator,acc_per_node,nodes,model,scenario,valid,unit,framework,samples_per_s\n"
    "v3.0,N,one,NVIDIA L4,1,1,resnet50,offline,VALID,samples/s,TensorRT,13000\n"
    "v3.0,N,four,NVIDIA L4,4,1,resnet50,offline,VALID,samples/s,TensorRT,52000\n"
    "v3.0,N,one,NVIDIA L4,1,1,resnet50,server,VALID,queries/s,TensorRT,12000\n"
    "v3.0,N,cpu,-,0,1,resnet50,offline,VALID,samples/s,PyTorch,16000\n"
    "v3.0,N,one,NVIDIA L4,1,1,llama2-70b-99,offline,VALID,tokens/s,TensorRT,5\n"
)


def test_mlperf_rows_are_per_accelerator_and_others_refused_by_name(folder):
    board = validate(["mlperf-inference"], folder({"serving/mlperf_inference.csv": MLPERF}), "spec")
    records = [r for r in row_records(board) if not r["refusal"]]
    assert len(records) == 2
    assert records[0]["measured_s"] == pytest.approx(1 / 13000) == records[1]["measured_s"]
    assert records[0]["predicted_s"] == records[1]["predicted_s"]
    (score,) = board.suites
    expected = {
        "submission without an accelerator whose host is not named": 1,
        "generated tokens are scored by the serving suites": 1,
    }
    assert score.refused == expected


MLPERF_NETWORKS = (
    "v1.1,N,one,NVIDIA A30,1,1,3d-unet-99,offline,VALID,samples/s,TensorRT,30\n"
    "v2.1,N,one,NVIDIA A30,1,1,3d-unet-99,offline,VALID,samples/s,TensorRT,1.8\n"
    "v4.1,N,one,NVIDIA H100-SXM-80GB,1,1,stable-diffusion-xl,offline,VALID,samples/s,TensorRT,2\n"
    "v3.0,Q,one,QUALCOMM Cloud AI 100 PCIe/HHHL Pro,1,1,bert-99,offline,VALID,samples/s,SDK,780\n"
    "v3.0,Q,one,QUALCOMM Cloud AI 100 PCIe/HHHL "
    "Pro,1,1,resnet50,offline,VALID,samples/s,SDK,24000\n"
)


def test_mlperf_networks_follow_the_round_and_mixed_formats_are_refused(folder):
    table = MLPERF.splitlines(keepends=True)[0] + MLPERF_NETWORKS
    board = validate(["mlperf-inference"], folder({"serving/mlperf_inference.csv": table}), "spec")
    answered = [r for r in row_records(board) if not r["refusal"]]
    assert len(answered) == 4
    volume, scan = (r["predicted_s"] for r in answered if r["profile"] == "a30")
    assert 5 * volume < scan < 30 * volume  # 61 windows of 0.95 TFLOP against one volume of 3.7
    (score,) = board.suites
    assert score.refused == {
        "engine of mixed INT8 and FP16: which layers run in which is not published": 1
    }


def test_mlperf_programs_that_submitters_publish_are_what_runs(folder):
    """Cloud AI 100: four programs of eight images for ResNet-50, each of which fetches
    its weights.
    """
    table = MLPERF.splitlines(keepends=True)[0] + MLPERF_NETWORKS
    board = validate(["mlperf-inference"], folder({"serving/mlperf_inference.csv": table}), "spec")
    (record,) = (
        r for r in row_records(board) if r["profile"] == "cloud-ai-100-pro" and not r["refusal"]
    )
    programs = Sourced(value=4, kind="derived", source="programs of the test")
    chip = catalog.device("cloud-ai-100-pro").model_copy(update={"core_count": programs})
    run = estimate("resnet-50", chip, batch=32, precision="int8")
    assert record["predicted_s"] == pytest.approx(1 / run.throughput_per_s, rel=0.02)
    assert (
        record["predicted_s"]
        > 1 / estimate("resnet-50", chip, batch=1024, precision="int8").throughput_per_s
    )


def test_mlperf_rows_without_an_accelerator_are_per_socket(folder):
    header = MLPERF.splitlines()[0] + ",host_cpu,sockets\n"
    row = "v3.0,I,two,-,0,1,resnet50,offline,VALID,samples/s,PyTorch,16000,xeon-platinum-8480+,2\n"
    board = validate(
        ["mlperf-inference"], folder({"serving/mlperf_inference.csv": header + row}), "spec"
    )
    (record,) = row_records(board)
    assert record["profile"] == "xeon-platinum-8480+"
    assert record["measured_s"] == pytest.approx(2 / 16000)


EXAMPLES = (
    "framework,family,task_mode,gpu,n_gpus,precision,batch,metric_kind,metric_header,row_context,source,value\n"
    'MxNet,RN50v1.5,inference,A100-80GB,1,amp,64,throughput,Throughput,"{}",x,9000\n'
    'TF,RN50v1.5,inference,T4,1,fp32,8,throughput,Throughput,"{}",x,100\n'
    'TF,RN50v1.5,inference,T4,1,fp32,8,throughput,Throughput,"{}",x,200\n'
    'TF,RN50v1.5,training,T4,1,fp32,,throughput,Throughput,"{}",x,300\n'
    'TF,UNet_Medical,inference,T4,1,fp32,1,throughput,Throughput,"{}",x,0\n'
)
MEASURED = "workload,phase,device,n_devices,precision,batch,metric,value,unit,note,source\n"


def test_ambiguous_example_rows_are_refused_by_name(folder):
    files = {
        "claims/reference_measurements.csv": MEASURED,
        "training/nvidia_deeplearningexamples.csv": EXAMPLES,
    }
    board = validate(["cnn-gpus"], folder(files), "spec")
    (score,) = board.suites
    assert score.figures.rows_answered == 1
    assert sorted(score.refused.values()) == [1, 1, 2]
    assert any("several tables" in reason for reason in score.refused)
    assert any("batch size" in reason for reason in score.refused)


def test_a_framework_issues_operators_unless_it_replays_graphs_on_boards_of_its_time(folder):
    row = '{},RN50v1.5,inference,{},{},amp,1,throughput,Throughput,"{{}}",x,100\n'
    boards = [("MxNet", "T4", ""), ("TensorFlow", "T4", "1"), ("MxNet", "A100-80GB", "1")]
    lines = [row.format(*board) for board in (*boards, ("Theano", "T4", "1"))]
    data = folder(
        {
            "training/nvidia_deeplearningexamples.csv": EXAMPLES[: EXAMPLES.index("\n") + 1]
            + "".join(lines)
        }
    )
    (score,) = validate(["cnn-gpus"], data, "spec").suites
    assert score.refused == {"no stack Theano": 1}
    of = {part.device: part.predicted_s.tolist() for part in score.rows if not part.refusal}
    mxnet_s, tensorflow_s = of["T4"]
    assert 2e-3 < tensorflow_s < mxnet_s < 10e-3
    assert of["A100-80GB"][0] < 1e-3


# -- comparison and registry


def test_the_registry_refuses_a_name_twice_and_unknown_names():
    names = [found.name for found in suites()]
    assert len(set(names)) == len(names)
    assert names[:3] == ["gpu-models", "cnn-gpus", "mlperf-inference"]
    assert names[6:8] == ["published", "silicon-kernels"]
    with pytest.raises(InvalidValueError, match="not registered yet"):
        register_suite("gpu-models", "", (), "model")(lambda _folder: [])
    with pytest.raises(UnknownNameError, match="gpu-models"):
        suite("gpu-model")


@pytest.mark.parametrize("lists", [{}, {"gpu_kernels/e2e_opgraphs.csv": OTHER_LIST}])
def test_operator_lists_come_with_accelsim_where_the_folder_lacks_them(folder, lists):
    labels = "device,model,mode,seq,batch,e2e_ms\nT4,bert_large,inf,512,8,694.46\n"
    (score,) = validate(
        ["gpu-models"], folder({"gpu_kernels/e2e_labels.csv": labels} | lists), "spec"
    ).suites
    assert score.figures.rows_answered == 1
    assert score.figures.mape_fraction < 0.5


def test_a_folder_s_own_operator_list_comes_first(folder):
    labels = "device,model,mode,seq,batch,e2e_ms\nT4,bert_large,inf,512,8,694.46\n"
    lists = OTHER_LIST.replace("other-inf-1-1", "bert_large-inf-512-8")
    data = folder({"gpu_kernels/e2e_labels.csv": labels, "gpu_kernels/e2e_opgraphs.csv": lists})
    (record,) = row_records(validate(["gpu-models"], data, "spec"))
    assert record["predicted_s"] < 1e-3


def test_a_suite_runs_on_the_tables_there_are(folder, tmp_path):
    vec = "op,device,split,b,h,latency_ms\nadd,T4,test,4096,4096,0.8\n"
    (score,) = validate(["gpu-operators"], folder({"gpu_kernels/ops_vec.csv": vec}), "spec").suites
    assert score.figures.rows_answered == 1
    with pytest.raises(InputError, match="or training/nvidia"):
        validate(["cnn-gpus"], tmp_path)


def test_a_named_suite_needs_its_tables(tmp_path):
    with pytest.raises(InputError, match="needs gpu_kernels/e2e_labels"):
        validate(["gpu-models"], tmp_path)


# -- hostile tables


BENCH = "device,precision,op,ta,tb,m,n,k,w,h_,c,r,s,pad_h,pad_w,stride_h,stride_w,"
BENCH += "hidden,batch,steps,floats,ranks,fwd_ms,bwd_in_ms,bwd_w_ms\n"


def test_operators_without_their_sizes_are_refused_by_name(folder):
    rows = (
        "NV_V100,fp32,gemm,N,N,1760,16,1760,,,,,,,,,,,,,,,0.1,,\n"
        "NV_V100,fp32,gemm,N,N,1760,,1760,,,,,,,,,,,,,,,0.1,,\n"
    )
    board = validate(
        ["gpu-operators"], folder({"gpu_kernels/deepbench_train.csv": BENCH + rows}), "spec"
    )
    (score,) = board.suites
    assert score.figures.rows_answered == 1
    assert score.refused == {"a size of the operator is missing or 0": 1}


def test_a_device_of_another_class_is_bad_data(folder):
    rows = "bmm,epyc-9654,test,8,256,64,512,0.4\nbmm,T4,test,8,256,64,512,0.4\n"
    board = validate(["gpu-operators"], folder({"gpu_kernels/ops_gemm.csv": GEMM + rows}), "spec")
    (problem,) = board.problems
    assert (problem.row, problem.column) == (2, "device")
    assert "epyc-9654 is of class cpu" in problem.detail
    assert board.suites[0].refused == {"epyc-9654 is no GPU": 1}


def test_a_workload_with_a_bad_operator_is_refused_whole(folder):
    labels = "device,model,mode,seq,batch,e2e_ms\nT4,a,inf,1,1,10\nT4,b,inf,1,1,10\n"
    lists = "desc,phase,op,repeat,b,m,n,k,h,bytes\n"
    lists += "a-inf-1-1,fw,linear,8,1,64,64,64,0,0\na-inf-1-1,fw,warp,8,1,64,64,64,0,0\n"
    lists += "b-inf-1-1,fw,relu,1,8,0,0,0,8,0\n"
    data = folder({"gpu_kernels/e2e_labels.csv": labels, "gpu_kernels/e2e_opgraphs.csv": lists})
    board = validate(["gpu-models"], data, "spec")
    (score,) = board.suites
    assert score.figures.rows_answered == 1
    assert score.refused["no operator list"] == 1
    assert (board.problems[0].row, board.problems[0].column) == (3, "op")


def test_a_folder_without_any_table_is_refused_with_a_hint(tmp_path, folder):
    with pytest.raises(InputError, match="no table of any suite"):
        validate([], tmp_path)
    inside = folder({"gpu_kernels/ops_vec.csv": "op,device,split,b,h,latency_ms\n"}) / "gpu_kernels"
    with pytest.raises(InputError, match="below the folder that --data names"):
        validate([], inside)
    with pytest.raises(InputError, match="below the folder that --data names"):
        validate(["gpu-operators"], inside)


# -- suites that cannot be scored


@pytest.fixture
def two_suites(monkeypatch):
    """Only these are known."""
    known = (suite("gpu-operators"), suite("dpu"))
    monkeypatch.setattr(score_module, "suites", lambda: known)


@pytest.mark.usefixtures("two_suites")
def test_a_suite_whose_extra_is_missing_is_skipped_unless_it_is_named(folder, monkeypatch):
    def missing(*_arguments, **_named):
        raise MissingDependencyError("pyarrow", "silicon")

    monkeypatch.setattr(score_module, "_predicted", missing)
    data = folder({"gpu_kernels/ops_gemm.csv": GEMM + "bmm,T4,test,8,256,64,512,0.4\n"})
    board = validate((), data, "spec")
    assert board.suites == ()
    assert "pip install 'accelsim[silicon]'" in board.skipped["gpu-operators"]
    with pytest.raises(MissingDependencyError, match="pyarrow"):
        validate(["gpu-operators"], data, "spec")


@pytest.mark.usefixtures("two_suites")
def test_a_table_without_rows_is_skipped_and_says_so(folder):
    board = validate((), folder({"gpu_kernels/ops_gemm.csv": GEMM}), "spec")
    assert board.suites == ()
    assert board.skipped["gpu-operators"] == "no usable rows"
    assert board.skipped["dpu"].startswith("no ")

"""Rows that a hostile or careless table may hold: other units, slips of many digits, cells that are
no run of a model.
"""

from __future__ import annotations

import pytest

import tools.scoreboard  # noqa: F401  (its suites, too)
from accelsim.scoreboard import validate

MEASURED = "workload,phase,device,n_devices,precision,batch,metric,value,unit,note,source\n"
EXAMPLES = (
    "framework,family,task_mode,gpu,n_gpus,precision,batch,"
    "metric_kind,metric_header,row_context,source,value,unit\n"
)
MLPERF = (
    "round,submitter,system,accelerator,acc_per_node,nodes,"
    "model,scenario,valid,unit,framework,samples_per_s\n"
)


SWEEP = "NVIDIA/DeepLearningExamples PyTorch ResNet50v1.5 README"


@pytest.mark.parametrize(
    ("file", "table", "unit", "wanted"),
    [
        (
            "claims/reference_measurements.csv",
            f"resnet-50,inference,T4,1,fp16,1,latency_avg,5,UNIT,,{SWEEP}",
            "s",
            "ms",
        ),
        (
            "claims/reference_measurements.csv",
            f"resnet-50,train,T4,1,fp16,64,throughput,200,UNIT,,{SWEEP}",
            "",
            "images/s",
        ),
        (
            "training/nvidia_deeplearningexamples.csv",
            'TensorFlow,RN50v1.5,inference,T4,1,fp32,8,throughput,Throughput,"{}",x,9,UNIT',
            "ms",
            "img/s",
        ),
        (
            "serving/mlperf_inference.csv",
            "v3.0,N,a,NVIDIA L4,1,1,resnet50,offline,VALID,UNIT,TensorRT,13000",
            "images/h",
            "samples/s",
        ),
    ],
)
def test_a_figure_in_another_unit_is_bad_data(folder, file, table, unit, wanted):
    headers = {"claims": MEASURED, "training": EXAMPLES, "serving": MLPERF}
    header = headers[file.partition("/")[0]]
    suite_name = "mlperf-inference" if file.startswith("serving") else "cnn-gpus"
    right = validate(
        [suite_name], folder({file: header + table.replace("UNIT", wanted) + "\n"}), "spec"
    )
    assert not right.problems
    assert right.suites[0].figures.rows_answered == 1
    wrong = validate(
        [suite_name], folder({file: header + table.replace("UNIT", unit) + "\n"}), "spec"
    )
    (problem,) = wrong.problems
    assert (problem.row, problem.column, problem.reason) == (2, "unit", "wrong unit")
    assert wrong.suites[0].refused == {"bad data: wrong unit": 1}


def test_two_rates_of_one_mlperf_submission_are_bad_data(folder):
    rows = [
        f"v3.0,N,one,NVIDIA L4,1,1,resnet50,offline,VALID,samples/s,TensorRT,{rate}\n"
        for rate in (13000, 26000)
    ]
    table = MLPERF + "".join(rows)
    board = validate(["mlperf-inference"], folder({"serving/mlperf_inference.csv": table}), "spec")
    assert [(p.row, p.column) for p in board.problems] == [
        (2, "samples_per_s"),
        (3, "samples_per_s"),
    ]


def test_an_operator_repeated_more_often_than_any_network_has_layers_is_bad_data(folder):
    labels = "device,model,mode,seq,batch,e2e_ms\nT4,a,inf,1,1,10\n"
    lists = (
        "desc,phase,op,repeat,b,m,n,k,h,bytes\na-inf-1-1,fw,linear,1000000000000,1,64,64,64,0,0\n"
    )
    data = folder({"gpu_kernels/e2e_labels.csv": labels, "gpu_kernels/e2e_opgraphs.csv": lists})
    (problem,) = validate(["gpu-models"], data, "spec").problems
    assert (problem.row, problem.column) == (2, "repeat")


SWEEP_ROW = "{workload},{phase},T4,1,{precision},{batch},latency_avg,5,ms,," + SWEEP
EXAMPLE_ROW = (
    "TensorFlow,RN50v1.5,{task},T4,1,{precision},{batch},throughput,Throughput,"
    '"{context}",x,9,img/s'
)


@pytest.mark.parametrize(
    "cells",
    [
        {"workload": "zorg"},
        {"workload": "llama-3.1-8b"},
        {"precision": "int3"},
        {"batch": "0"},
        {"batch": "9" * 30},
        {"batch": "\u0663"},
    ],
)
def test_a_sweep_that_is_no_run_is_refused_alone(folder, cells):
    good = {"workload": "resnet-50", "phase": "inference", "precision": "fp16", "batch": "2"}
    rows = [SWEEP_ROW.format(**good), SWEEP_ROW.format(**good | {"batch": "1"} | cells)]
    board = validate(
        ["cnn-gpus"],
        folder({"claims/reference_measurements.csv": MEASURED + "\n".join(rows)}),
        "spec",
    )
    assert board.suites[0].figures.rows_answered == 1
    assert sum(board.suites[0].refused.values()) == 1


@pytest.mark.parametrize(
    "cells",
    [
        {"precision": "int8"},
        {"batch": "0"},
        {"batch": "9" * 30},
        {"task": "dreaming"},
        {"context": '{""Resolution"": ""big""}'},
        {"context": '{""Resolution"": [3]}'},
    ],
)
def test_an_example_that_is_no_run_is_refused_alone(folder, cells):
    good = {"task": "inference", "precision": "fp16", "batch": "2", "context": "{}"}
    rows = [EXAMPLE_ROW.format(**good), EXAMPLE_ROW.format(**good | {"batch": "1"} | cells)]
    data = folder({"training/nvidia_deeplearningexamples.csv": EXAMPLES + "\n".join(rows)})
    (score,) = validate(["cnn-gpus"], data, "spec").suites
    assert score.figures.rows_answered == 1
    assert sum(score.refused.values()) == 1


def test_operators_of_a_list_are_not_counted_among_the_rows_asked(folder):
    labels = "device,model,mode,seq,batch,e2e_ms\nT4,a,inf,1,1,10\n"
    lists = "desc,phase,op,repeat,b,m,n,k,h,bytes\n" + "a-inf-1-1,zz,relu,1,8,0,0,0,8,0\n" * 3
    data = folder({"gpu_kernels/e2e_labels.csv": labels, "gpu_kernels/e2e_opgraphs.csv": lists})
    board = validate(["gpu-models"], data, "spec")
    assert len(board.problems) == 3
    assert (board.suites[0].rows_asked, board.suites[0].refused) == (1, {"no operator list": 1})

"""The public names, and that importing them is light."""

import subprocess
import sys

import numpy as np
import pytest

import accelsim
from accelsim.dtype import precision
from accelsim.workloads.model import PassShape

HEAVY = ("torch", "pandas", "simpy", "scipy", "plotly", "rich", "typer")


def loaded_after(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in done.stdout.split()}


def test_names_are_sorted_and_all_there():
    assert list(accelsim.__all__) == sorted(accelsim.__all__)
    assert set(accelsim.__all__) <= set(dir(accelsim))
    for name in accelsim.__all__:
        if name != "capture":
            assert getattr(accelsim, name) is not None
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = accelsim.nothing_of_the_kind


def test_import_loads_nothing_heavy():
    assert not loaded_after("import accelsim").intersection(HEAVY)


def test_an_estimate_needs_no_torch_or_pandas():
    loaded = loaded_after("import accelsim; accelsim.estimate('resnet-50', 't4')")
    assert not loaded.intersection({"torch", "pandas", "rich", "typer", "plotly"})


def test_workload_stays_a_function_after_its_package_is_imported():
    code = "import accelsim.workloads.model, accelsim; print(accelsim.workload('resnet-50').name)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "resnet-50"


def test_operator_costs_at_a_precision():
    graph = (
        accelsim.workload("bert-base")
        .lower(PassShape(batch=2, seq_len=128), precision("fp32"))
        .graph
    )
    as_written = accelsim.operator_costs(graph, "a100-sxm-80gb")
    half = accelsim.operator_costs(graph, "a100-sxm-80gb", "fp16")
    assert len(as_written) == len(graph)
    assert half.total_time_s < as_written.total_time_s
    assert np.all(half.time_s > 0)


def test_frames_name_their_operators():
    graph = accelsim.workload("lenet-5").lower(PassShape(batch=1), precision("fp32")).graph
    frame = accelsim.operator_costs(graph, "t4").to_frame(graph)
    assert {"name", "kind", "time_s", "bound"} <= set(frame.columns)

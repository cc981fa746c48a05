"""Operators that a compiler generates code for: built, measured, fitted, and priced in compiled
execution.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from accelsim import catalog  # noqa: E402
from accelsim.calibration import run_measurement as measure  # noqa: E402
from accelsim.calibration.calibrate import fit_run  # noqa: E402
from accelsim.calibration.measurement import compiled_calls  # noqa: E402
from accelsim.calibration.measurement.captured_rows import (  # noqa: E402
    captured_row,
    case_graph,
    has_row,
)
from accelsim.calibration.measurement.case import Case  # noqa: E402
from accelsim.calibration.measurement.compiled_calls import COMPILED_OPERATORS, why_not_compiled  # noqa: E402
from accelsim.calibration.measurement.operators import OperandPool, build_call  # noqa: E402
from accelsim.calibration.measurement.session import Session  # noqa: E402
from accelsim.calibration.measurement.suite import compiled_suite, operator_suite  # noqa: E402
from accelsim.calibration.run_file import CalibrationRun, Measurement, RunFile, read_run  # noqa: E402
from accelsim.cost.cpu import cost_cpu, cpu_parameters  # noqa: E402
from accelsim.cost.table import Execution  # noqa: E402
from accelsim.workloads.fusion import fuse_elementwise  # noqa: E402
from accelsim.workloads.graph import OperatorGraph  # noqa: E402

pytestmark = pytest.mark.torch
SHAPES = {
    "compiled_elementwise": {"elements": 1000},
    "compiled_layer_norm": {"rows": 40, "columns": 128},
    "compiled_softmax": {"rows": 40, "columns": 128},
    "compiled_call": {"count": 1},
}
#: A machine whose library takes 1 ps a byte and whose compiler's loops take 3 ps, entered in 20 us.
BYTE_S, LOOP_S, ENTRY_S = 1e-12, 3e-12, 20e-6


@pytest.fixture
def uncompiled(monkeypatch):
    """Functions as they are in place of compiled ones."""
    monkeypatch.setattr(torch, "compile", lambda function: function)


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("operator", SHAPES)
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_calls_write_what_their_rows_say(operator, dtype):
    case = Case("compiled", operator, SHAPES[operator], dtype, execution="compiled")
    result = build_call(case, OperandPool("cpu"))()
    assert torch.isfinite(result.float()).all()
    if has_row(case):
        result_bytes = result.numel() * result.element_size()
        statistics = 0.05 * result_bytes  # of a norm, which graphs have too
        assert result_bytes <= case_graph([case]).write_bytes[0] <= result_bytes + statistics


def test_compiled_code_computes_the_same():
    from torch._inductor import config

    x, y = torch.randn(1000), torch.randn(1000)
    # scalar code: which vector instructions there are is found by compiling a program for each
    with config.patch({"cpp.simdlen": 1, "cpp.vec_isa_ok": True}), torch.no_grad():
        reason = why_not_compiled("cpu")
        if reason is not None:
            pytest.skip(reason)
        compiled = compiled_calls._compiled(compiled_calls._elementwise, x, y)()
    torch.testing.assert_close(compiled, torch.relu(x * 0.5 + y) * y)


def test_a_machine_that_cannot_compile_says_why(monkeypatch, tmp_path):
    def refuse(_function):
        raise RuntimeError("no C++ compiler here")

    monkeypatch.setattr(torch, "compile", refuse)
    with RunFile(tmp_path / "run.jsonl", {}, {"device": "cpu"}) as file:
        measure._measure_compiled(Session("cpu", file), 1.0, compiled_suite("cpu", ("fp32",), (1,)))
    run = read_run(tmp_path / "run.jsonl")
    assert run.rows == []
    assert run.notes == [{"note": "compiled", "skipped": "RuntimeError: no C++ compiler here"}]


@pytest.fixture(scope="module")
def kernels():
    eager = [c for c in operator_suite("cpu", ("fp32",), (1,)) if has_row(c)][:900]
    compiled = [c for c in compiled_suite("cpu", ("fp32",), (1,)) if has_row(c)]
    rows = [
        Measurement(
            Case("framework", "compiled_call", {"count": 1}, execution="compiled"),
            ENTRY_S,
            0.0,
            0,
            {},
        )
    ]
    for cases, price, entry in ((eager, BYTE_S, 0.0), (compiled, LOOP_S, ENTRY_S)):
        times = 1e-6 + entry + price * case_graph(cases).bytes
        rows += [
            Measurement(c, float(t), 0.0, 0, {"minor_faults": 0.0}, row=captured_row(c))
            for c, t in zip(cases, times, strict=True)
        ]
    return fit_run(CalibrationRun({}, {"device": "cpu"}, rows, [], "abc", 0)).kernels


def test_entering_is_no_part_of_a_kernel(kernels):
    assert kernels.compiled_call_s == ENTRY_S
    assert {name for name, *_ in kernels.fits} >= set(COMPILED_OPERATORS)
    start = kernels.fits["compiled_elementwise", "fp32", 1].coefficients[0]
    assert 0.5e-6 < start < 0.2 * ENTRY_S


def priced(graph: OperatorGraph, kernels, execution):
    parameters = replace(
        cpu_parameters(), kernels=kernels, thread_count=1, weights_cold=False, keeps_heap=True
    )
    return cost_cpu(
        graph, catalog.device("epyc-9755"), execution=execution, parameters=parameters
    ).time_s


def test_compiled_execution_takes_the_compilers_loops(kernels):
    case = Case("elementwise", "add", {"elements": 4_000_000})
    graph = case_graph([case])
    eager, compiled = (
        priced(graph, kernels, how).sum() for how in (Execution.EAGER, Execution.COMPILED)
    )
    assert eager == pytest.approx(1e-6 + BYTE_S * graph.bytes.sum(), rel=0.2)
    assert compiled == pytest.approx(ENTRY_S + LOOP_S * graph.bytes.sum(), rel=0.2)


def test_an_epilogue_runs_after_the_librarys_product(kernels):
    product = Case("gemm", "addmm", {"m": 2048, "n": 2048, "k": 64})
    behind = Case("elementwise", "gelu", {"elements": 2048 * 2048})
    apart = case_graph([product, behind])
    fused = fuse_elementwise(apart)
    assert len(fused) == 1
    alone = priced(apart.take(np.array([0])), kernels, Execution.COMPILED).sum()
    loop = priced(fused, kernels, Execution.COMPILED).sum() - alone
    assert loop == pytest.approx(LOOP_S * apart.bytes[1], rel=0.3)


def test_without_measured_loops_compiled_execution_runs_the_eager_kernels(kernels):
    few = replace(
        kernels, fits={k: v for k, v in kernels.fits.items() if not k[0].startswith("compiled")}
    )
    graph = case_graph([Case("elementwise", "add", {"elements": 4_000_000})])
    assert priced(graph, few, Execution.COMPILED).sum() - ENTRY_S == pytest.approx(
        priced(graph, few, Execution.EAGER).sum(), rel=0.01
    )
    product = Case("gemm", "addmm", {"m": 2048, "n": 2048, "k": 64})
    apart = case_graph([product, Case("elementwise", "gelu", {"elements": 2048 * 2048})])
    eager = priced(apart, few, Execution.EAGER).sum()
    assert priced(
        fuse_elementwise(apart), few, Execution.COMPILED
    ).sum() - ENTRY_S == pytest.approx(eager, rel=0.2)

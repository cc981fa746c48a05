"""Times of measured CPU kernels from their coefficients, by hand."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from operator_cases import row

from accelsim import catalog
from accelsim.cost.cpu import cost_cpu, cpu_parameters
from accelsim.cost.cpu.calibrated import kernels_document, read_kernels
from accelsim.cost.cpu.fitted_kernels import FittedKernels, KernelFit
from accelsim.cost.cpu.kernel_terms import TERMS, Context
from accelsim.cost.cpu.threads import THREAD_TERMS
from accelsim.cost.table import Execution, ParameterTier
from accelsim.dtype import Dtype
from accelsim.errors import ProfileError
from accelsim.files.datafile import read_json
from accelsim.workloads.graph import concatenate
from accelsim.workloads.operator import OperatorKind as K

HOT = Context(
    l1_bytes=48 * 1024,
    l2_bytes=1e6,
    l3_bytes=1e8,
    reuse_bytes=0.0,
    is_training=False,
    page_fault_bytes=1e6,
)
#: A start of 1 us, 10 ps a FLOP, 100 ps a byte read or written, 1 ns a fresh byte.
ONE_THREAD = {
    "start": 1e-6,
    "flop": 1e-11,
    "read_bytes": 1e-10,
    "write_bytes": 1e-10,
    "fresh_bytes": 1e-9,
}
COPY = row(K.COPY, (1,), read=4000.0, write=4000.0)


def coefficients(names, **values):
    return np.array([values.get(name, 0.0) for name in names])


def kernels(fits=None, **changes) -> FittedKernels:
    usual = {("copy", "fp32", 1): KernelFit(coefficients(TERMS, **ONE_THREAD), 0.1, 50)}
    return FittedKernels(usual if fits is None else fits, 48e3, 1e6, 1e8, **changes)


def test_a_kernel_takes_its_start_its_work_and_its_bytes():
    graph = row(K.COPY, (1,), flop=1e6, read=4000.0, write=4000.0)
    found = kernels().times(graph, HOT, 1)
    assert found.time_s[0] == pytest.approx(1e-6 + 1e-5 + 8e-7)
    assert found.compute_s[0] == pytest.approx(1e-5)
    assert found.memory_s[0] == pytest.approx(8e-7)
    assert (found.fresh_s[0], found.log_sigma[0]) == (0.0, 0.1)


def test_fresh_pages_are_memory_and_told_apart():
    graph = row(K.COPY, (1,), write=2e6)
    found = kernels().times(graph, HOT, 1)
    assert found.fresh_s[0] == pytest.approx(2e-3)
    assert found.memory_s[0] == pytest.approx(2e-3 + 2e-4)


def test_kernels_that_were_not_measured_have_no_time_and_formats_that_were_not_take_fp32s():
    graph = concatenate(
        [
            COPY,
            row(K.SOFTMAX, (4, 4)),
            row(K.COPY, (1,), dtype=Dtype.BF16, read=4000.0, write=4000.0),
        ]
    )
    found = kernels().times(graph, HOT, 1).time_s
    assert np.isnan(found).tolist() == [False, True, False]
    assert found[2] == found[0]


# -- threads


def test_several_threads_follow_from_the_time_on_one():
    """What starts the call is not split; everything else of a copy of more elements than the
    framework's grain is.
    """
    parallel = {"start": 5e-6, "parallel_s": 0.3, "serial_s": 1.0, "fresh_bytes": 4e-10}
    fits = {
        ("copy", "fp32", 1): KernelFit(coefficients(TERMS, **ONE_THREAD), 0.1, 50),
        ("copy", "fp32", 4): KernelFit(coefficients(THREAD_TERMS, **parallel), 0.2, 50),
    }
    found = kernels(fits).times(row(K.COPY, (500_000,), write=2e6), HOT, 4)
    assert found.time_s[0] == pytest.approx(
        5e-6 + 1e-6 + 0.3 * 2e-4 + 4e-10 * 2e6
    )  # 0.2 ms without page faults
    assert found.compute_s[0] == pytest.approx(1e-6 + 0.3 * 2e-4)
    assert found.memory_s[0] == pytest.approx(8e-4)
    short = kernels(fits).times(COPY, HOT, 4)
    assert short.time_s[0] == pytest.approx(1e-6 + 8e-7)


@pytest.mark.parametrize(("threads", "sigma"), [(1, 0.1), (2, 0.1), (3, 0.2), (4, 0.2), (64, 0.2)])
def test_the_nearest_measured_count_stands_for_others(threads, sigma):
    """Nearest in ratio: two is as far from one as from four, and takes the first; three is nearer
    to four.
    """
    fits = {("copy", "fp32", count): KernelFit(coefficients(names), s, 1) for count, names, s in
            ((1, TERMS, 0.1), (4, THREAD_TERMS, 0.2))}  # fmt: skip
    assert kernels(fits).times(COPY, HOT, threads).log_sigma[0] == sigma


# -- whole rows

XEON = catalog.device("xeon-e5-2630-v3")


def cost(graph, execution=Execution.EAGER, **changes):
    used = replace(cpu_parameters(), thread_count=1, weights_cold=False, kernels=kernels(**changes))
    return cost_cpu(graph, XEON, execution, used)


def test_measured_kernels_replace_formulas_and_the_rest_keep_theirs():
    graph = concatenate([COPY, row(K.SOFTMAX, (4, 4), read=64.0, write=64.0)])
    table = cost(graph)
    plain = cost_cpu(
        graph, XEON, parameters=replace(cpu_parameters(), thread_count=1, weights_cold=False)
    )
    assert table.tier is ParameterTier.FITTED
    assert table.time_s.tolist() == [pytest.approx(1e-6 + 8e-7), plain.time_s[1]]
    assert table.log_sigma[1] == plain.log_sigma[1]


def test_kernels_are_written_and_read_back(tmp_path):
    fits = {
        ("copy", "fp32", 1): KernelFit(coefficients(TERMS, **ONE_THREAD), 0.1, 50),
        ("copy", "fp32", 4): KernelFit(
            coefficients(THREAD_TERMS, start=5e-6), 0.2, 40, serial_s=2e-5
        ),
    }
    whole = kernels(fits, compiled_call_s=1e-6)
    path = tmp_path / "cpu.kernels.json"
    document = kernels_document(whole, {"machine": "bench"})
    path.write_text(json.dumps(document))
    found = read_kernels(path)
    assert (found.l1_bytes, found.l2_bytes, found.l3_bytes) == (48e3, 1e6, 1e8)
    assert found.compiled_call_s == 1e-6
    for key, fit in fits.items():
        assert found.fits[key].coefficients.tolist() == fit.coefficients.tolist()
        assert (found.fits[key].rows, found.fits[key].log_sigma) == (fit.rows, fit.log_sigma)
    assert found.fits[("copy", "fp32", 4)].serial_s == 2e-5
    assert read_json(path)["origin"] == {"machine": "bench"}
    for damage in (
        {"version": 1},
        {"schema": "other"},
        {"kernels": [["copy"]]},
    ):
        path.write_text(json.dumps(document | damage))
        with pytest.raises(ProfileError):
            read_kernels(path)


@pytest.mark.parametrize("wrong", [[-1.0], [float("inf")], [], [1.0, 1.0]])
def test_a_kernel_has_a_coefficient_from_zero_for_every_term(tmp_path, wrong):
    document = kernels_document(kernels(), {})
    document["kernels"][0][-1:] = wrong
    path = tmp_path / "cpu.kernels.json"
    path.write_text(json.dumps(document))
    with pytest.raises(ProfileError):
        read_kernels(path)


def grouped(name, groups=8, m=64, weights=8000.0, **changes):
    graph = row(
        K.GROUPED_GEMM,
        (groups, m, 10, 20),
        flop=8e6,
        read=1600.0,
        write=3200.0,
        weights=weights,
        **changes,
    )
    return replace(graph, name=(name,), variant=None)


def test_a_grouped_product_takes_as_long_as_its_groups_one_by_one():
    each = {
        ("linear_thin", "fp32", 1): KernelFit(
            coefficients(TERMS, start=1e-6, flop=1e-11, weight_bytes=1e-10), 0.1, 9
        )
    }
    one = row(K.GEMM, (1, 8, 10, 20), flop=1e6, read=200.0, write=400.0, weights=1000.0)
    fitted = kernels(each)
    groups = 8 * (1 - (7 / 8) ** 64)  # those that rows fall into
    assert fitted.times(grouped("_grouped_mm"), HOT, 1).time_s[0] == pytest.approx(
        groups * fitted.times(one, HOT, 1).time_s[0], rel=1e-3
    )


def test_two_rows_meet_less_than_two_of_eight_groups_and_read_their_weights_alone():
    weights = {
        ("linear_thin", "fp32", 1): KernelFit(coefficients(TERMS, weight_bytes=1e-10), 0.1, 9)
    }
    found = kernels(weights).times(grouped("_grouped_mm", m=2), HOT, 1)
    assert found.time_s[0] == pytest.approx(8 * (1 - (7 / 8) ** 2) * 1000.0 * 1e-10)


def test_a_batched_product_with_a_stack_of_weights_is_one_call():
    batched = {("bmm", "fp32", 1): KernelFit(coefficients(TERMS, start=1e-6, flop=1e-11), 0.1, 9)}
    found = kernels(batched).times(grouped("bmm"), HOT, 1)
    assert found.time_s[0] == pytest.approx(1e-6 + 8e-5)


def grouped_convolution(groups=4, batch=4, kernel=1, dtype=Dtype.FP32):
    dims = (batch, 64 * groups, 32 * groups, groups, 1, 1, 64, 1, 1, 64, 1, 1, kernel, 1, 1)
    sizes = {
        "flop": 1e6 * groups,
        "read": 1e3 * groups,
        "write": 500.0 * groups,
        "weights": 8e3 * groups,
    }
    return row(K.CONV, dims, dtype=dtype, **sizes)

"""Scratchpad accesses, mapping and utilisation: SCALE-Sim's rows, a brute-force simulation, and
laws.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelsim.cost.systolic.counts import array_counts
from accelsim.cost.systolic.cycles import systolic_cycles
from accelsim.errors import InvalidValueError
from accelsim.hardware.profile import Dataflow

OS, WS, IS = Dataflow.OUTPUT_STATIONARY, Dataflow.WEIGHT_STATIONARY, Dataflow.INPUT_STATIONARY
FLOWS = st.sampled_from([OS, WS, IS])

# SCALE-Sim v2 (22f88b17), CALC mode: M, N, K, R, C, dataflow; cycles as reported, mapping
# efficiency, utilisation and overall utilisation in percent, input reads, weight reads, output
# writes.
REPORTS = [
    (
        (128, 64, 128, 128, 128, OS),
        (381, 50.0, 16.75392670157068, 16.79790026246719, 16384, 8192, 8448),
    ),
    (
        (128, 64, 128, 128, 128, IS),
        (445, 100.0, 11.169284467713787, 14.382022471910112, 16384, 8192, 8192),
    ),
    (
        (128, 64, 128, 128, 128, WS),
        (509, 50.0, 10.047095761381476, 12.573673870333987, 16384, 8192, 8192),
    ),
    (
        (196, 64, 24, 32, 32, WS),
        (579, 75.0, 45.794392523364486, 50.77720207253886, 9408, 1536, 12544),
    ),
]


@pytest.mark.parametrize(("layer", "report"), REPORTS)
def test_reports_equal_scale_sims_with_its_quirks(layer, report):
    counts = array_counts(*layer, compat="scalesim")
    found = (
        counts.cycles,
        100 * counts.mapping_efficiency_fraction,
        100 * counts.utilisation_fraction,
        100 * counts.overall_utilisation_fraction,
        counts.input_reads,
        counts.weight_reads,
        counts.output_writes,
    )
    assert [float(x) for x in found] == pytest.approx(report, rel=1e-12)


def simulated(m, n, k, rows, columns, dataflow):
    """Fold by fold: elements used, words read and written."""
    down, across = (m, n) if dataflow is OS else (k, n) if dataflow is WS else (k, m)
    stream = k if dataflow is OS else m if dataflow is WS else n
    used, reads_down, reads_across, tiles, writes, folds = 0, 0, 0, 0, 0, 0
    for top in range(0, down, rows):
        for left in range(0, across, columns):
            height, width = min(rows, down - top), min(columns, across - left)
            folds += 1
            used += height * width
            reads_down += height * stream
            reads_across += width * stream
            tiles += height * width
            writes += width * stream if dataflow is not OS else height * width
    inputs, weights = {
        OS: (reads_down, reads_across),
        WS: (reads_down, tiles),
        IS: (tiles, reads_down),
    }[dataflow]
    return used / (folds * rows * columns), inputs, weights, writes


@settings(max_examples=80, deadline=None)
@given(*(st.integers(1, 60) for _ in range(3)), st.integers(1, 20), st.integers(1, 20), FLOWS)
def test_counts_equal_a_walk_over_the_folds(m, n, k, rows, columns, dataflow):
    counts = array_counts(m, n, k, rows, columns, dataflow)
    mapping, inputs, weights, outputs = simulated(m, n, k, rows, columns, dataflow)
    assert float(counts.mapping_efficiency_fraction) == pytest.approx(mapping)
    assert (float(counts.input_reads), float(counts.weight_reads), float(counts.output_writes)) == (
        inputs,
        weights,
        outputs,
    )


@settings(max_examples=60, deadline=None)
@given(*(st.integers(1, 3000) for _ in range(3)), st.integers(1, 300), st.integers(1, 300), FLOWS)
def test_utilisation_never_exceeds_the_mapping_which_never_exceeds_one(
    m, n, k, rows, columns, dataflow
):
    counts = array_counts(m, n, k, rows, columns, dataflow)
    mapped = float(counts.mapping_efficiency_fraction)
    assert 0 < float(counts.utilisation_fraction) <= mapped * (1 + 1e-12) <= 1 + 1e-9
    assert counts.cycles == systolic_cycles(m, n, k, rows, columns, dataflow)
    assert counts.overall_utilisation_fraction == counts.utilisation_fraction


def test_arrays_and_layers_broadcast():
    counts = array_counts([[10], [20]], 5, 7, [4, 8, 16], [4, 8, 16], OS)
    assert counts.cycles.shape == counts.output_writes.shape == (2, 3)
    assert np.array_equal(
        counts.cycles[1], [systolic_cycles(20, 5, 7, side, side, OS) for side in (4, 8, 16)]
    )


@pytest.mark.parametrize(
    ("arguments", "named"), [((0, 1, 1, 8, 8, OS), "m, n, k"), ((1, 1, 1, 0, 8, OS), "rows")]
)
def test_empty_products_and_arrays_are_refused(arguments, named):
    with pytest.raises(InvalidValueError, match=named):
        array_counts(*arguments)
    with pytest.raises(InvalidValueError, match="compat"):
        array_counts(1, 1, 1, 8, 8, OS, compat="timeloop")

"""Lowering many sizes: the order of scenarios changes nothing, ranks add up to the whole."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelsim.catalog.workloads import workload
from accelsim.workloads.lowering import ShapeColumns, lower
from accelsim.workloads.operator import CONTRACTION_KINDS, Phase
from accelsim.workloads.options import ModelOptions
from accelsim.workloads.sharding import Shard, Stage

pytestmark = pytest.mark.law
MODEL = ModelOptions(precision="bf16")
MATRIX = [int(kind) for kind in CONTRACTION_KINDS]
batches = st.integers(1, 512)
lengths = st.integers(1, 4096).map(lambda n: 8 * n)
sizes = st.lists(st.tuples(batches, lengths), min_size=1, max_size=6)


def totals(parts, count):
    """FLOP, bytes and live memory of each scenario."""
    found = np.empty((count, 3))
    for part in parts:
        launched = part.repeat_count
        moved = part.read_bytes + part.write_bytes + part.weight_bytes
        columns = (part.flop @ launched, moved @ launched, part.peak_live_bytes())
        found[part.scenario] = np.stack(columns, axis=1)
    return found


def matrix_flop(parts):
    return sum(
        float(part.flop[0] @ (part.repeat_count * np.isin(part.kind, MATRIX))) for part in parts
    )


@settings(max_examples=settings.default.max_examples // 4)
@given(sizes, st.randoms(use_true_random=False), st.sampled_from(["llama-3.2-1b", "mixtral-8x7b"]))
def test_the_order_of_scenarios_changes_nothing(pairs, random, name):
    turned = list(range(len(pairs)))
    random.shuffle(turned)
    model, (batch, length) = workload(name), np.array(pairs).T
    straight = lower(model, MODEL, ShapeColumns.of(batch=batch, seq_len=length))
    again = lower(model, MODEL, ShapeColumns.of(batch=batch[turned], seq_len=length[turned]))
    expected = totals(straight, len(pairs))[turned]
    np.testing.assert_allclose(totals(again, len(pairs)), expected, rtol=1e-12)


@settings(max_examples=settings.default.max_examples // 4)
@given(
    batches,
    lengths,
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([1, 2, 4]),
    st.integers(1, 16),
    st.booleans(),
)
def test_what_the_ranks_do_is_what_one_does(batch, length, tp, cp, stages, sp):
    """Every product, and attention over even shares of its triangle; ranks stand for each other."""
    model = workload("llama-3.2-1b")
    shapes = ShapeColumns.of(batch=batch, seq_len=length * tp * cp)
    whole = matrix_flop(lower(model, MODEL, shapes, phase=Phase.FORWARD))
    parts = 0.0
    for index in range(stages):
        shard = Shard(tp=tp, cp=cp, sp=sp and tp > 1, stage=Stage(index, stages), vocabulary=True)
        parts += tp * cp * matrix_flop(lower(model, MODEL, shapes, shard))
    if cp == 1:
        assert parts == pytest.approx(whole, rel=1e-9)
    else:  # a rank's queries see the mean of what causal ones see, not the whole rectangle
        assert 0.5 * whole <= parts <= whole * (1 + 1e-9)

"""Step times from tables: a run is its steps, and points of the tables are met."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelsim.catalog.clusters import cluster
from accelsim.errors import InvalidValueError
from accelsim.estimation.options import RunOptions
from accelsim.estimation.resolution import resolve
from accelsim.serving.options import ServingOptions
from accelsim.serving.steps import step_tables
from accelsim.serving.steps.combined_steps import PipelinedSteps
from accelsim.serving.steps.step_tables import StepLimits
from accelsim.serving.steps.step_times import StepCurve
from accelsim.workloads.options import ModelOptions
from accelsim.workloads.sharding import Shard

from .scenarios import table_steps

counts = st.integers(1, 600)


@pytest.mark.law
@given(st.integers(0, 50), counts, st.integers(1, 9000), st.integers(1, 400))
@settings(max_examples=60)
def test_a_run_takes_what_its_steps_take(seed, count, cached, steps):
    tables = table_steps(seed)
    one_by_one = [tables.step(0, 0, count, count * (cached + k)) for k in range(steps)]
    seconds, joules = tables.decode_run(count, count * cached, steps)
    assert seconds == pytest.approx(sum(s for s, _ in one_by_one), rel=1e-9)
    assert joules == pytest.approx(sum(j for _, j in one_by_one), rel=1e-9)


@pytest.mark.parametrize(
    ("board", "node"), [("h100-sxm-80gb", "dgx-h100"), ("b200-sxm", "dgx-b200")]
)
def test_a_stacks_all_reduce_starts_as_its_architecture_does(board, node):
    """65 all-reduces of a step of Llama-3.1-8B on 8 devices, each half a microsecond later."""
    options = RunOptions(model=ModelOptions(stack="tensorrt-llm"))
    run = resolve("llama-3.1-8b", board, options)
    run = replace(run, shard=Shard(tp=8), cluster=cluster(node))
    architecture = run.device.architecture
    starts = run.stack.all_reduce_start_us
    of_own = starts.get(architecture, starts["other"])
    times = []
    for added_us in (0.0, 0.5):
        later = of_own.model_copy(update={"value": of_own.value + added_us})
        own = run.stack.model_copy(update={"all_reduce_start_us": {architecture: later}})
        found = step_tables.step_tables(
            replace(run, stack=own), ServingOptions(tp=8), StepLimits(64, 8, 512), 0.0
        )
        times.append(found.step(0, 0, 4, 512)[0])
    assert times[1] - times[0] == pytest.approx(65 * 0.5e-6, rel=1e-3)


def test_points_of_the_tables_are_met():
    tables = table_steps(3)
    tokens, cached = 256, 512
    seconds, _ = tables.step(tokens, tokens * (cached + (tokens + 1) / 2), 0, 0)
    layers = np.interp(tokens, tables.layers.at, tables.layers.time_s)
    expected = tables.overhead_s + layers + tables.logits.time_s[0] + tables.prefill.time_s[2, 2]
    assert seconds == pytest.approx(expected, rel=1e-12)
    alone, _ = tables.step(0, 0, 16, 16 * 64)
    logits = np.interp(16, tables.logits.at, tables.logits.time_s)
    expected = tables.overhead_s + np.interp(16, tables.layers.at, tables.layers.time_s) + logits
    assert alone == pytest.approx(expected + tables.decode.time_s[1, 1], rel=1e-12)


@pytest.mark.law
@given(st.integers(0, 20), st.integers(1, 2000), st.integers(0, 5000), counts)
def test_more_tokens_or_keys_never_take_less(seed, tokens, cached, count):
    tables = table_steps(seed)
    keys = tokens * (cached + (tokens + 1) / 2)
    first = tables.step(tokens, keys, count, count * 100)[0]
    assert tables.step(tokens, keys + tokens * 64, count, count * 100)[0] >= first
    assert tables.step(tokens, keys, count, count * 200)[0] >= first
    assert tables.step(0, 0, count, count * 100)[0] < first


def test_prompts_beyond_the_tables_are_passes_of_their_last_point():
    tables = table_steps(2, overhead_s=0.0)
    most, keys = 4096, 4096 * 4097 / 2
    logits = np.array([tables.logits.time_s[0], tables.logits.energy_j[0]])
    once = np.array(tables.step(most, keys, 0, 0)) - logits
    thrice = np.array(tables.step(3 * most, 3 * keys, 0, 0)) - logits
    assert thrice == pytest.approx(3 * once, rel=1e-12)


@given(st.integers(1, 400), st.integers(1, 64), st.integers(1, 4))
def test_the_batches_of_a_round_spend_energy_beside_prompts_too(tokens, count, stages):
    inner = table_steps(4, overhead_s=0.0)
    rounds = PipelinedSteps(inner, stages, 512)
    keys, context = tokens * (tokens + 1) / 2, count * stages * 100
    prompts = inner.step(tokens, keys, count, count * 100)
    others = inner.step(0, 0, count, count * 100)
    seconds, joules = rounds.step(tokens, keys, count * stages, context)
    assert seconds == pytest.approx(prompts[0], rel=1e-12)
    assert joules == pytest.approx(prompts[1] + (stages - 1) * others[1], rel=1e-9)


def test_a_table_out_of_order_is_refused():
    tables = table_steps()
    with pytest.raises(InvalidValueError, match="layers"):
        type(tables)(
            layers=StepCurve(np.array([2, 1]), np.zeros(2), np.zeros(2)),
            decode_layers=tables.layers,
            logits=tables.logits,
            prefill=tables.prefill,
            decode=tables.decode,
        )

"""Pipelines on the engine take what their closed forms say, hold what they say, and order holds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import accelsim
from accelsim.errors import InvalidValueError
from accelsim.training.schedules.bubble import dualpipe_bubble_s, zero_bubble_v_bubble_s
from accelsim.training.schedules.pipeline import PipelineWork, simulate_pipeline
from accelsim.training.schedules.schedule import StagePass, pipeline_order
from accelsim.training.schedules.sharded import ShardedWork, simulate_sharded

STAGES = st.integers(1, 6)
SECONDS = st.floats(0.01, 10.0)


def work(stages, chunks=1, forward=1.0, backward=2.0, weight=0.0, **changes):
    shape = (stages, chunks)
    values = {
        "forward_s": np.full(shape, forward / chunks),
        "backward_s": np.full(shape, backward / chunks),
        "weight_s": np.full(shape, weight / chunks),
        "send_s": 0.0,
        "reduce_s": np.zeros(stages),
        "bucket_count": 1,
        "update_s": np.zeros(stages),
    }
    return PipelineWork(**values | changes)


@given(STAGES, st.integers(1, 16), SECONDS, SECONDS, st.sampled_from(["gpipe", "1f1b"]))
def test_gpipe_and_1f1b_take_the_work_and_their_bubble(stages, count, forward, backward, schedule):
    run = simulate_pipeline(
        pipeline_order(schedule, stages, count), work(stages, forward=forward, backward=backward)
    )
    bubble = (stages - 1) * (forward + backward)  # Huang et al. 2019, arXiv:1811.06965
    assert run.makespan_s == pytest.approx(count * (forward + backward) + bubble, rel=1e-9)


@given(STAGES, st.integers(1, 3), st.integers(2, 3), SECONDS, SECONDS)
def test_chunks_divide_the_bubble(stages, rounds, chunks, forward, backward):
    count = rounds * stages
    order = pipeline_order("interleaved", stages, count, chunks)
    run = simulate_pipeline(order, work(stages, chunks, forward, backward))
    # Narayanan et al. 2021, arXiv:2104.04473, section 2.2.2
    bubble = (stages - 1) * (forward + backward) / chunks
    assert run.makespan_s == pytest.approx(count * (forward + backward) + bubble, rel=1e-9)


@given(STAGES, st.integers(0, 6), SECONDS)
def test_zb_h1_leaves_a_third_of_the_bubble_where_passes_are_alike(stages, more, each):
    count = 2 * stages + more
    times = work(stages, forward=each, backward=each, weight=each)
    run = simulate_pipeline(pipeline_order("zb-h1", stages, count), times)
    # Qi et al. 2024, arXiv:2401.10241, section 2: (p - 1)(F + B - 2 W), B with its weight part
    bubble = (stages - 1) * (each + 2 * each - 2 * each)
    assert run.makespan_s == pytest.approx(3 * count * each + bubble, rel=1e-9)


def test_closed_forms_of_zb_v_and_dualpipe():
    forward, backward, weight = np.array([1.0, 1.0]), np.array([2.0, 3.0]), np.array([1.0, 1.0])
    even, uneven = zero_bubble_v_bubble_s(8, forward, backward, weight)
    assert even == pytest.approx(0.0)
    assert uneven > 0
    assert dualpipe_bubble_s(8, 2.5, 2.0, 1.0) == pytest.approx(4.5)  # DeepSeek, DualPipe README


@given(STAGES, st.integers(1, 3), st.integers(1, 3), st.sampled_from(["gpipe", "1f1b", "zb-h1"]))
def test_orders_run_every_pass_once(stages, rounds, chunks, schedule):
    if chunks > 1:
        schedule = "interleaved"
    count = rounds * stages
    order = pipeline_order(schedule, stages, count, chunks)
    kinds = 3 if schedule == "zb-h1" else 2
    for stage in range(stages):
        passes = {*zip(order.kind[stage], order.chunk[stage], order.microbatch[stage], strict=True)}
        assert len(passes) == order.kind.shape[1] == kinds * count * chunks


def test_sends_lengthen_a_pipeline_and_reductions_hide_behind_the_backward_pass():
    order = pipeline_order("1f1b", 4, 8)
    plain = simulate_pipeline(order, work(4)).makespan_s
    assert simulate_pipeline(order, work(4, send_s=0.1)).makespan_s > plain + 0.59
    reduced = {"reduce_s": np.full(4, 1.0), "update_s": np.full(4, 0.5)}
    whole = simulate_pipeline(order, work(4, **reduced)).makespan_s
    cut_up = simulate_pipeline(order, work(4, **reduced, bucket_count=4)).makespan_s
    assert whole == pytest.approx(plain + 1.0 + 0.5)
    assert cut_up == pytest.approx(plain + 0.25 + 0.5)


def test_a_timeline_has_every_task_in_order():
    order = pipeline_order("interleaved", 2, 4, 2)
    run = simulate_pipeline(order, work(2, 2, send_s=0.01), record=True)
    line = run.timeline
    passes, sends = 2 * 2 * 4 * 2, 2 * 4 * 3  # to and from the three chunks after the first
    assert len(line) == passes + sends
    assert line.busy_s("stage 0") == pytest.approx(4 * 2 * (1.0 + 2.0) / 2)
    assert {"stage 1", "activations 0 to 1", "gradients 1 to 0"} <= set(line.resources)


def test_counts_that_interleaving_does_not_divide_are_refused():
    with pytest.raises(InvalidValueError, match="multiple of the 4 stages"):
        pipeline_order("interleaved", 4, 6, 2)


def test_an_order_that_waits_for_itself_is_refused():
    order = pipeline_order("1f1b", 2, 2)
    order.kind[1] = StagePass.BACKWARD
    with pytest.raises(InvalidValueError, match="waits for itself"):
        simulate_pipeline(order, work(2))
    pipeline_order.cache_clear()


@given(st.integers(1, 12), SECONDS, SECONDS, SECONDS, SECONDS)
def test_blocks_of_weights_come_beside_the_computation(blocks, forward, backward, gather, reduce):
    times = ShardedWork(*(np.full(blocks, x) for x in (forward, backward, gather, reduce)), 0.0)
    run = simulate_sharded(times, 1)
    computed = blocks * (forward + backward)
    moved = blocks * (2 * gather + reduce)
    assert run.makespan_s >= max(computed + gather + reduce, moved) * (1 - 1e-12)
    alone = ShardedWork(
        *(np.full(blocks, x) for x in (forward, backward, gather, reduce)), 0.0, overlap=False
    )
    assert simulate_sharded(alone, 1).makespan_s == pytest.approx(computed + moved)


@pytest.mark.parametrize("model", ["llama-3.1-8b", "falcon-7b", "gpt2"])
def test_a_compiler_that_joins_layers_makes_no_stage_send_more(model):
    """Its last kernel of a layer writes the next layer's norm, too, which a stage does not send."""
    asked = {"cluster": "dgx-superpod-a100", "gpus": 2, "global_batch": 8, "seq_len": 512}
    plan = "pp=2,recompute=full"
    plain, joined = (
        accelsim.train(model, plan=plan, execution=word, check_memory=False, **asked)
        for word in ("eager", "compiled")
    )
    hidden = plain.iteration.costs["output_bytes"][0][1]
    assert joined.iteration.costs["output_bytes"][0][1] == hidden
    kept = [one.memory["activation_bytes"] for one in (plain, joined)]
    assert kept[1] <= kept[0] * (1 + 1e-9)

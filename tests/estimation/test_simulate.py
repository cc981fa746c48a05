"""A simulation's passes, operators and timeline add up to its figures; collectives are in them."""

from __future__ import annotations

import numpy as np
import pytest

import accelsim
from accelsim import Shard
from accelsim.errors import DoesNotFitError, InvalidValueError
from accelsim.estimation.sharded_costs import rank_group
from accelsim.workloads.sharding import ParallelGroup, Stage

LLAMA = "llama-3.1-8b"
RUN = {"seq_len": 64, "output_len": 8, "execution": "graph"}


def test_an_estimate_is_the_sum_of_its_simulation():
    one, many = (
        call(LLAMA, "h100-sxm-80gb", **RUN) for call in (accelsim.estimate, accelsim.simulate)
    )
    assert one.latency_s == many.latency_s
    assert one.energy_j == many.energy_j
    interval, other = (run.metrics["latency_s"].to_dict() for run in (one, many))
    assert interval == pytest.approx(other, rel=1e-14)  # the order of a sum of squares
    assert one.inputs == many.inputs


def test_the_timeline_has_one_repeat_of_each_pass():
    run = accelsim.simulate(LLAMA, "h100-sxm-80gb", **RUN)
    line = run.timeline
    busy = sum(float((p.table.time_s + p.table.dispatch_s).sum()) for p in run.passes)
    assert line.busy_s("compute") == pytest.approx(busy, rel=1e-9)
    kernels = line.select(resource="compute")
    assert len(kernels) == sum(len(p.graph) for p in run.passes)
    names = {line.names[code] for code in np.unique(kernels.name)}
    assert names >= set(run.passes[0].graph.name)
    assert line.makespan_s == pytest.approx(sum(p.result.latency_s for p in run.passes), rel=1e-9)


def test_a_frame_has_a_row_per_operator():
    run = accelsim.simulate("resnet-50", "t4", batch=8)
    frame = run.to_frame()
    assert len(frame) == len(run.passes[0].graph)
    assert frame["time_s"].sum() == pytest.approx(run.passes[0].table.total_time_s)


def test_two_ranks_take_less_time_and_memory_and_show_their_collectives():
    alone = accelsim.simulate(LLAMA, "h100-sxm-80gb", **RUN)
    pair = accelsim.simulate(LLAMA, "h100-sxm-80gb", shard=Shard(tp=2), cluster="dgx-h100", **RUN)
    assert alone.latency_s / 2 < pair.latency_s < alone.latency_s
    assert pair.memory.weight_bytes < 0.51 * alone.memory.weight_bytes
    frame = pair.to_frame()
    joined = frame[frame["kind"] == "all_reduce"]
    assert len(joined) == 65 * len(pair.passes)
    assert (joined["time_s"] > 0).all()
    assert set(joined["bound"]) == {"link"}
    assert pair.inputs["ranks"] == {"tensor": 2, "expert_tensor": 2}


def test_collectives_need_a_cluster():
    with pytest.raises(InvalidValueError, match="clusters list"):
        accelsim.simulate(LLAMA, "h100-sxm-80gb", shard=Shard(tp=2), **RUN)


def test_a_model_that_does_not_fit_says_what_is_short():
    with pytest.raises(DoesNotFitError, match="short of memory"):
        accelsim.simulate("llama-3.1-70b", "t4", seq_len=8, output_len=1)


def test_neighbours_in_a_tensor_group_stages_apart():
    shard = Shard(tp=4, cp=2, stage=Stage(0, 3))
    assert rank_group(ParallelGroup.TENSOR, shard).ranks.tolist() == [0, 1, 2, 3]
    assert rank_group(ParallelGroup.CONTEXT, shard).ranks.tolist() == [0, 4]
    assert rank_group(ParallelGroup.PIPELINE, shard).ranks.tolist() == [0, 8, 16]


def test_accumulated_steps_take_their_parts_and_one_update():
    run = accelsim.simulate("resnet-50", "t4", batch=64, mode="training", accumulation=4)
    whole = accelsim.simulate("resnet-50", "t4", batch=16, mode="training")
    part, update = run.passes
    assert (part.repeats, update.repeats) == (4.0, 1.0)
    assert len(part.graph) + len(update.graph) == len(whole.passes[0].graph)
    assert run.memory == whole.memory
    assert run.flop == pytest.approx(4 * whole.flop)
    with pytest.raises(InvalidValueError, match="accumulation"):
        accelsim.simulate("resnet-50", "t4", batch=64, mode="training", accumulation=3)


def test_stored_formats_change_memory_and_time_but_not_arithmetic():
    plain, light = (
        accelsim.estimate(LLAMA, "h100-sxm-80gb", precision="bf16", **formats, **RUN)
        for formats in ({}, {"weight_format": "int4", "kv_format": "fp8"})
    )
    assert light.memory["weight_bytes"] < 0.4 * plain.memory["weight_bytes"]
    assert light.memory["kv_cache_bytes"] == plain.memory["kv_cache_bytes"] / 2
    assert light.time_per_output_token_s < plain.time_per_output_token_s
    assert light.flop == plain.flop


def test_activations_in_use_are_those_of_the_time_line_from_its_start_to_its_end():
    run = accelsim.simulate(LLAMA, "h100-sxm-80gb", **RUN)
    line = run.timeline
    usage = line.counters["memory_bytes"]
    kernels = line.select(resource="compute").sorted()
    assert usage.at(kernels.start_s).min() > 0
    assert usage.time_s[0] == kernels.start_s[0]
    assert usage.time_s[-1] == line.makespan_s
    assert (np.diff(usage.time_s) >= 0).all()
    assert usage.at(line.makespan_s) == 0

"""Memory of a training step: published tables, stages worked out by hand, laws of random plans, and
the peak of live tensor bytes of torch on a CPU.
"""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import accelsim
from accelsim.dtype import PRECISIONS, Dtype
from accelsim.estimation.options import RunOptions, run_options
from accelsim.training.candidates import CandidatePlans
from accelsim.training.memory import (
    MEMORY_PARTS,
    gradient_width_bytes,
    in_flight,
    keeps_wide_gradients,
    state_bytes,
    worst_memory,
)
from accelsim.training.place import training_setup
from accelsim.training.plan import SCHEDULES, ParallelismPlan
from accelsim.training.schedules.schedule import pipeline_order
from accelsim.training.score import score
from accelsim.training.setup import Conditions, TrainingPlace
from accelsim.training.stages import StagedPlans, StageTable

#: A GPT of 6 layers, 256 wide, 4 heads, 8,192 tokens, untied learned positions, FP32, AdamW, fused
#: attention and GELU: second step of torch 2.13 on a CPU, gradients kept since the first, storages
#: counted once (TorchDispatchMode). The peak is in the gradient of the loss's softmax.
MEASURED_BYTES = {(4, "none"): 314_067_256, (8, "none"): 517_703_992, (4, "full"): 219_498_808}
SIZES = {
    "layers": 6,
    "hidden_size": 256,
    "heads": 4,
    "intermediate_size": 1024,
    "vocab_size": 8192,
    "max_positions": 256,
    "activation": "gelu",
}


@pytest.mark.parametrize(("batch", "recompute"), MEASURED_BYTES)
def test_peak_of_live_tensors_is_met(batch, recompute):
    gpt = accelsim.workload("gpt2")
    small = replace(gpt, name="small", parameters=gpt.parameters.model_copy(update=SIZES))
    plan = f"microbatch={batch},recompute={recompute}"
    found = accelsim.train(
        small, device="xeon-platinum-8380", seq_len=256, precision="fp32", plan=plan
    )
    tolerance = 0.03 if recompute == "full" else 0.001
    assert found.memory_bytes == pytest.approx(MEASURED_BYTES[batch, recompute], rel=tolerance)


# -- states of ZeRO


@pytest.mark.parametrize(
    ("parameters", "ranks", "bytes_by_zero"),
    [
        (7.5e9, 64, (120e9, 31.40625e9, 16.640625e9, 1.875e9)),
        (128e9, 1024, (2048e9, 513.5e9, 257.75e9, 2e9)),
        (1e12, 1024, (16e12, 4011.71875e9, 2013.671875e9, 15.625e9)),
        (7.5e9, 1, (120e9, 120e9, 120e9, 120e9)),
    ],
)
def test_states_are_those_of_zeros_table(parameters, ranks, bytes_by_zero):
    """Rajbhandari et al. 2020, arXiv:1910.02054, figure 1 and table 1."""
    for zero, whole in enumerate(bytes_by_zero):
        weight, gradient, optimizer = state_bytes(parameters, zero, ranks)
        assert weight + gradient + optimizer == pytest.approx(whole, rel=1e-12)
        assert weight == 2 * parameters / (ranks if zero == 3 else 1)
        assert gradient == 2 * parameters / (ranks if zero >= 2 else 1)
        assert optimizer == 12 * parameters / (ranks if zero >= 1 else 1)


def test_weights_that_are_not_trained_have_neither_gradients_nor_states():
    assert state_bytes(100.0, 0, 4, trained_count=10.0) == (200, 20, 120)
    widths = {"weight_bytes": 1.0, "gradient_bytes": 4.0, "optimizer_bytes": 16.0}
    assert state_bytes(100.0, 3, 4, trained_count=10.0, **widths) == (25, 10, 40)


# -- microbatches in flight


@pytest.mark.parametrize(
    ("schedule", "chunks", "microbatches", "held"),
    [
        ("gpipe", 1, 8, [8, 8, 8, 8]),
        ("1f1b", 1, 8, [4, 3, 2, 1]),
        ("1f1b", 1, 2, [2, 2, 2, 1]),
        ("zb-h1", 1, 8, [4, 4, 4, 4]),
        ("zb-v", 1, 8, [4, 4, 4, 4]),
        ("dualpipe", 1, 8, [5, 5, 5, 5]),
        ("interleaved", 3, 8, [15 / 3, 13 / 3, 11 / 3, 9 / 3]),
        ("interleaved", 3, 4, [12 / 3, 12 / 3, 11 / 3, 9 / 3]),
    ],
)
def test_stages_keep_what_their_schedule_has_under_way(schedule, chunks, microbatches, held):
    """Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.3: a first stage of 1F1B keeps all
    layers' worth, p stages, and 1 + (p - 1)/(p v) times that where chunks interleave.
    """
    plans = CandidatePlans.of([ParallelismPlan(pp=4, schedule=schedule, chunks=chunks)])
    assert in_flight(plans, np.array([microbatches]), 4)[0].tolist() == pytest.approx(held)


@given(
    st.sampled_from(["gpipe", "1f1b", "zb-h1", "interleaved"]),
    st.integers(2, 9),
    st.integers(1, 9),
    st.integers(2, 4),
)
def test_columns_say_what_the_simulated_schedules_hold(schedule, stages, rounds, chunks):
    chunks = chunks if schedule == "interleaved" else 1
    plans = CandidatePlans.of([ParallelismPlan(pp=stages, schedule=schedule, chunks=chunks)])
    count = rounds * stages
    held = in_flight(plans, np.array([count]), stages)[0] * chunks
    simulated = pipeline_order(schedule, stages, count, chunks).in_flight()
    assert held.tolist() == pytest.approx(simulated.tolist())


# -- stages by hand: bytes and parameters of two stages


def stage_columns(**changes):
    """One way to cut a model, of parameters that are neither experts nor tables."""
    values = {
        "parameters": [[1000.0, 600.0]],
        "expert_parameters": [[0.0, 0.0]],
        "table_parameters": [[0.0, 0.0]],
        "trained_parameters": [[1000.0, 600.0]],
        "trained_experts": [[0.0, 0.0]],
        "saved_bytes": [[9000.0, 3000.0]],
        "selective_saved_bytes": [[4000.0, 1000.0]],
        "selective_again_bytes": [[20.0, 15.0]],
        "working_bytes": [[70.0, 110.0]],
        "block_saved_bytes": [[2500.0, 1500.0]],
        "again_bytes": [[40.0, 30.0]],
        "block_parameters": [[250.0, 300.0]],
        "pair_parameters": [[450.0, 500.0]],
        "block_counts": [[4.0, 3.0]],
        "input_bytes": [[32.0, 24.0]],
        "boundary_bytes": [8.0],
    }
    arrays = {name: np.array(value) for name, value in (values | changes).items()}
    experts, tables = (arrays[f"{name}_parameters"] for name in ("expert", "table"))
    arrays["expert_weight_bytes"] = 2.0 * experts
    arrays["weight_bytes"] = 2.0 * (arrays["parameters"] - experts - tables)
    return StageTable(arrays, arrays.pop("boundary_bytes"), {})


def mixed_setup(*, has_master=True, gradient=2.0, **conditions):
    """BF16 weights; 12 bytes of a parameter are states and master copy."""
    master = Dtype.FP32 if has_master else None
    around = Conditions(**conditions)
    return SimpleNamespace(
        run=SimpleNamespace(precision=replace(PRECISIONS["bf16"], master_weight=master)),
        gradient_bytes=gradient,
        state_bytes=12.0,
        fragmentation_fraction=around.fragmentation_fraction or 0.0,
        reserve_bytes=lambda plans: np.full(len(plans), around.reserve_bytes or 0.0),
    )


def memory(plan, table=None, microbatches=1, setup=None):
    """Parts of the worst stage's ranks, their sum under "all", and the stage."""
    plans = CandidatePlans.of([ParallelismPlan(pp=2, **plan)])
    staged = (table or stage_columns(), np.array([0]), np.array([microbatches]))
    found, stage = worst_memory(StagedPlans(setup or mixed_setup(), plans, *staged))
    parts = {name: float(found[name][0]) for name in MEMORY_PARTS}
    return parts | {"all": sum(parts.values()), "stage": int(stage[0])}


def states(found):
    return [found[f"{name}_bytes"] for name in ("weight", "gradient", "optimizer")]


def test_the_worst_stages_parts_are_told():
    first = memory({}, microbatches=2)
    assert first["stage"] == 0
    assert states(first) == [2000, 4000, 12000]  # a pipeline's gradients are FP32
    assert first["activation_bytes"] == 2 * 9000
    assert first["working_bytes"] == 70
    assert first["buffer_bytes"] == first["reserve_bytes"] == 0
    later = memory({}, stage_columns(saved_bytes=[[9000.0, 90000.0]]), 2)
    assert later["stage"] == 1
    assert states(later) == [1200, 2400, 7200]
    assert later["activation_bytes"] == 90000
    assert later["working_bytes"] == 110


def test_gradients_are_wide_beside_a_master_copy_where_layers_or_stages_are_split():
    plans = [ParallelismPlan(dp=4), ParallelismPlan(tp=2), ParallelismPlan(pp=2)]
    places, counts = np.zeros(3, dtype=np.int64), np.array([8, 1, 1])
    for has_master, alone, widths in (
        (True, 2.0, [2, 4, 4]),
        (False, 2.0, [2, 2, 2]),
        (True, 8.0, [8, 8, 8]),
    ):
        setup = mixed_setup(has_master=has_master, gradient=alone)
        staged = StagedPlans(setup, CandidatePlans.of(plans), stage_columns(), places, counts)
        assert gradient_width_bytes(setup, keeps_wide_gradients(staged)).tolist() == widths


@pytest.mark.parametrize(
    ("plan", "held"),
    [
        ({"dp": 4, "cp": 2}, [2000, 4000, 12000]),
        ({"dp": 4, "cp": 2, "zero": 1}, [2000, 4000, 12000 / 8]),
        ({"dp": 4, "cp": 2, "zero": 1, "shard_group": 2}, [2000, 4000, 12000 / 2]),
        ({"dp": 4, "cp": 2, "zero": 1, "optimizer_offload": True}, [2000, 0, 0]),
        ({"schedule": "dualpipe"}, [4000, 8000, 12000]),  # both directions' stages on each rank
    ],
)
def test_states_are_shared_by_the_ranks_that_hold_copies(plan, held):
    assert states(memory(plan)) == held


@pytest.mark.parametrize(
    ("plan", "dense_ranks", "expert_ranks"),
    [
        ({"dp": 8, "tp": 2, "sp": True, "ep": 4}, 8, 4),  # 16 ranks, an expert on one in four
        ({"dp": 8, "tp": 2, "sp": True, "ep": 4, "etp": 2}, 8, 2),
        ({"dp": 8, "tp": 2}, 8, 8),  # experts split as dense layers are
        ({"dp": 8, "tp": 2, "cp": 2, "sp": True, "ep": 4}, 16, 8),
        ({"dp": 2, "ep": 2}, 2, 1),
    ],
)
def test_states_of_experts_are_shared_by_the_ranks_that_hold_their_copies(
    plan, dense_ranks, expert_ranks
):
    table = stage_columns(
        expert_parameters=[[640.0, 0.0]],
        trained_parameters=[[360.0, 600.0]],
        trained_experts=[[640.0, 0.0]],
    )
    shared = 12 * 360 / dense_ranks + 12 * 640 / expert_ranks
    assert states(memory({"zero": 1, **plan}, table)) == [2000, 4000, pytest.approx(shared)]


def test_frozen_layers_and_experts_have_weights_alone():
    table = stage_columns(
        expert_parameters=[[640.0, 0.0]],
        trained_parameters=[[30.0, 60.0]],
        trained_experts=[[20.0, 0.0]],
    )
    assert states(memory({}, table)) == [2000, 4 * 50, 12 * 50]


def test_tables_lie_on_one_rank_each_with_states_and_without_dense_gradients():
    table = stage_columns(table_parameters=[[800.0, 0.0]], trained_parameters=[[200.0, 600.0]])
    for zero in (0, 1):
        held = states(memory({"dp": 2, "cp": 2, "zero": zero}, table))
        optimizer = 12 * 200 / (4 if zero else 1) + 12 * 800 / 4
        assert held == [2 * 200 + 2 * 800 / 4, 4 * 200, optimizer]


@pytest.mark.parametrize(
    ("plan", "microbatches", "waiting"),
    [
        ({}, 1, 9000),
        ({}, 4, 2 * 9000),
        ({"schedule": "gpipe"}, 4, 4 * 9000),
        ({"recompute": "selective"}, 4, 2 * 4000 + 20),
        ({"recompute": "full"}, 4, 2 * 4 * 8 + 40),  # inputs of four layers, and the one run again
        ({"activation_offload": True}, 4, 2500),  # the block that is worked on
        ({"activation_offload": True, "recompute": "full"}, 4, 2500),
    ],
)
def test_activations_wait_for_their_backward_passes(plan, microbatches, waiting):
    assert memory(plan, microbatches=microbatches)["activation_bytes"] == waiting


def test_an_allocator_that_fragments_and_a_reserve_add_to_what_is_held():
    setup = mixed_setup(fragmentation_fraction=0.2, reserve_bytes=512.0)
    found = memory({}, setup=setup)
    assert found["allocator_bytes"] == pytest.approx((9000 + 70) * 0.2 / 0.8)
    assert found["reserve_bytes"] == 512
    assert states(found) == [2000, 4000, 12000]


@pytest.mark.parametrize(
    ("plan", "held"),
    [
        ({}, 0),
        ({"tp": 2}, 0),
        ({"dp": 2, "bucket_bytes": 300.0}, 300),
        ({"cp": 2, "bucket_bytes": 300.0}, 300),
        ({"dp": 2, "bucket_bytes": 1e6}, 2000),  # no more than all gradients
        ({"optimizer_offload": True, "bucket_bytes": 300.0}, 300),  # on their way to the host
    ],
)
def test_buckets_of_gradients_wait_where_ranks_share_them(plan, held):
    assert memory(plan)["buffer_bytes"] == held


@pytest.mark.parametrize("gradient", [2.0, 4.0])
def test_fsdp_gathers_the_block_that_runs_and_the_next(gradient):
    """Zhao et al. 2023, arXiv:2304.11277: weights of two blocks, gradients of one; stage 2 has the
    latter too.
    """
    table = stage_columns()
    one = replace(table, values={name: column[:, :1] for name, column in table.values.items()})
    sharded = [ParallelismPlan(dp=4, zero=zero, bucket_bytes=100.0) for zero in (3, 2)]
    plans = CandidatePlans.of([*sharded, ParallelismPlan(zero=3)])
    setup, places = mixed_setup(gradient=gradient), np.array([0, 0, 0])
    found, _ = worst_memory(StagedPlans(setup, plans, one, places, np.array([1, 1, 1])))
    block = 250 * gradient
    assert found["buffer_bytes"].tolist() == [450 * 2 + block, block, 0]
    assert found["weight_bytes"].tolist() == [2000 / 4, 2000, 2000]
    assert found["gradient_bytes"].tolist() == [gradient * 250] * 2 + [gradient * 1000]


# -- laws of random plans on many devices

TWO_ROWS = {
    "parameters": [[1000.0, 600.0], [500.0, 900.0]],
    "expert_parameters": [[640.0, 0.0], [0.0, 320.0]],
    "table_parameters": [[100.0, 0.0], [50.0, 0.0]],
    "trained_parameters": [[260.0, 600.0], [450.0, 580.0]],
    "trained_experts": [[640.0, 0.0], [0.0, 320.0]],
    "saved_bytes": [[9000.0, 12000.0], [4500.0, 8000.0]],
    "selective_saved_bytes": [[4000.0, 10000.0], [2000.0, 7000.0]],
    "selective_again_bytes": [[20.0, 15.0], [10.0, 7.0]],
    "working_bytes": [[70.0, 110.0], [35.0, 55.0]],
    "block_saved_bytes": [[2500.0, 1500.0], [1200.0, 700.0]],
    "again_bytes": [[40.0, 30.0], [20.0, 15.0]],
    "block_parameters": [[250.0, 300.0], [125.0, 150.0]],
    "pair_parameters": [[450.0, 500.0], [225.0, 250.0]],
    "boundary_bytes": [8.0, 4.0],
    "block_counts": [[4.0, 3.0], [4.0, 3.0]],
    "input_bytes": [[32.0, 24.0], [16.0, 12.0]],
}
COUNTS = st.sampled_from([1, 2, 4, 8])


@st.composite
def placed_plans(draw):
    """A plan, its row (which tells ranks of a sequence and chunks), and its microbatches."""
    row = draw(st.integers(0, 1))
    schedule = draw(st.sampled_from(SCHEDULES))
    kept = ["none", "selective", *([] if schedule.startswith("zb") else ["full"])]
    dp, cp, zero = draw(COUNTS), 1 + row, draw(st.integers(0, 1))
    plan = ParallelismPlan(
        pp=2,
        dp=dp,
        cp=cp,
        zero=zero,
        shard_group=draw(st.sampled_from([None, 1, dp * cp])) if zero else None,
        schedule=schedule,
        chunks=2 + row if schedule == "interleaved" else 1,
        recompute=draw(st.sampled_from(kept)),
        optimizer_offload=draw(st.booleans()),
        activation_offload=draw(st.booleans()),
        bucket_bytes=draw(st.sampled_from([100.0, 300.0, 25e6])),
    )
    return plan, row, draw(st.integers(1, 9))


@pytest.mark.law
@given(st.lists(placed_plans(), min_size=2, max_size=12))
def test_a_plan_takes_alone_what_it_takes_among_others(placed):
    table, setup = stage_columns(**TWO_ROWS), mixed_setup(fragmentation_fraction=0.1)
    plans, rows, counts = zip(*placed, strict=True)
    places, microbatches = np.array(rows), np.array(counts)
    columns = (table, places, microbatches)
    together, worst_stages = worst_memory(StagedPlans(setup, CandidatePlans.of(plans), *columns))
    for k, plan in enumerate(plans):
        one = (table, places[k : k + 1], microbatches[k : k + 1])
        alone, (worst_stage,) = worst_memory(StagedPlans(setup, CandidatePlans.of([plan]), *one))
        assert worst_stages[k] == worst_stage
        for name, column in alone.items():
            assert together[name][k] == pytest.approx(column[0], rel=1e-12), name


@st.composite
def plans_of_64(draw):
    """A plan of gpt2 on 64 devices."""
    tp, pp, cp = draw(st.sampled_from([1, 2, 4])), draw(COUNTS), draw(st.sampled_from([1, 2]))
    schedule = draw(st.sampled_from(["gpipe", "1f1b", "zb-h1"]))
    kept = ["none", "selective", *([] if schedule.startswith("zb") else ["full"])]
    return ParallelismPlan(
        dp=64 // (tp * pp * cp),
        tp=tp,
        pp=pp,
        cp=cp,
        zero=draw(st.integers(0, 3 if pp == 1 else 1)),
        microbatch=draw(st.sampled_from([1, 2])),
        schedule=schedule,
        recompute=draw(st.sampled_from(kept)),
        optimizer_offload=draw(st.booleans()),
    )


GPT2 = training_setup(
    "gpt2",
    run_options(RunOptions(), {"mode": "training", "seq_len": 256}),
    TrainingPlace("dgx-superpod-h100", gpus=64, global_batch=512),
)


def scored(*plans):
    candidates = CandidatePlans.of(plans)
    counts = np.array([512 // (plan.dp * plan.microbatch) for plan in plans])
    found = score(GPT2, candidates, counts, GPT2.units(candidates), GPT2.costs())
    assert np.sum(list(found.memory.values()), axis=0) == pytest.approx(found.memory_bytes)
    return found


@pytest.mark.law
@given(plans_of_64())
def test_what_shares_more_or_keeps_less_never_takes_more_memory(plan):
    sharing = [replace(plan, zero=zero) for zero in range(4 if plan.pp == 1 else 2)]
    keeping = [replace(plan, recompute=word) for word in ("none", "selective")]
    offloading = [replace(plan, optimizer_offload=is_away) for is_away in (False, True)]
    for plans in (sharing, keeping, offloading):
        held = scored(*plans)
        states_bytes = held.memory_bytes - held.memory["buffer_bytes"]  # FSDP gathers weights
        assert (np.diff(states_bytes) <= 0).all()


@pytest.mark.law
@given(plans_of_64())
def test_ranks_that_share_states_hold_each_once(plan):
    """The ranks that hold copies have, with ZeRO-1, one set of states together: of the stage that
    needs the most, 12 bytes for each 2 of weights.
    """
    plan = replace(plan, optimizer_offload=False)
    for zero, ranks in ((0, 1), (1, plan.dp * plan.cp)):
        held = scored(replace(plan, zero=zero)).memory
        assert held["optimizer_bytes"] * ranks == pytest.approx(6 * held["weight_bytes"])

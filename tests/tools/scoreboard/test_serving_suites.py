"""Suites of served language models: which rows are asked, and what their figures are made of."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from accelsim.capacity.batch_queue import BatchTimes
from accelsim.confidence.quantiles import Z90
from accelsim.errors import InvalidValueError
from accelsim.scoreboard import validate
from accelsim.scoreboard.data_folder import DataFolder
from accelsim.scoreboard.mlperf_inference import MLPERF_SCHEMA
from tools.scoreboard.served_systems import Load, Ranks, Served, closed_loop, plan_of, split
from tools.scoreboard.serving_energy import ENERGY_SCHEMA, steady_state
from tools.scoreboard.serving_energy import load as load_energy
from tools.scoreboard.serving_findings import findings
from tools.scoreboard.serving_layers import A6000, TPU_LAYERS
from tools.scoreboard.serving_layers import load as load_layers
from tools.scoreboard.serving_mlperf import load as load_mlperf
from tools.scoreboard.serving_ranks import COUNTS, ranks_of, usual_reading
from tools.scoreboard.serving_requests import REQUESTS_SCHEMA
from tools.scoreboard.serving_requests import load as load_requests
from tools.scoreboard.serving_tokens import (
    TOKENS_SCHEMA,
    load_tpot,
    load_ttft,
    served_engine,
    served_precision,
    served_workload,
    stated_formats,
)

H200 = "h200-sxm-141gb"
ROW = {
    "id": "a",
    "silicon_data_source": "silicon_concurrency=4; measured",
    "backend": "vllm",
    "model_path": "nvidia/Llama-3.1-8B-Instruct-FP8",
    "system": "h200_sxm",
    "precision": "fp8",
    "mode": "agg",
    "isl": 512,
    "osl": 64,
    "silicon_ttft_ms": 30.0,
    "silicon_tpot_ms": 6.0,
}


def folder_of(tmp_path, schema, *rows: Mapping[str, object]) -> DataFolder:
    """A folder with one table of rows; columns that a row lacks are empty."""
    path = tmp_path / schema.file.removesuffix(".gz")
    path.parent.mkdir(exist_ok=True)
    names = [column.name for column in schema.columns]
    lines = [",".join(str(row.get(name, "")) for name in names) for row in rows]
    path.write_text("\n".join([",".join(names), *lines]) + "\n", encoding="utf-8")
    return DataFolder(tmp_path)


@pytest.fixture(scope="module")
def served() -> Served:
    workload = served_workload("meta-llama/Llama-3.1-8B-Instruct")
    return Served(workload, served_precision(workload, "x/y", "fp8"), "vllm", H200)


def test_rows_are_answered_by_both_suites_or_refused_by_name(tmp_path):
    unknown = {"model_path": "org/nothing-7b"}
    linear = {"model_path": "nvidia/NVIDIA-Nemotron-Nano-9B-v2"}
    folder = folder_of(tmp_path, TOKENS_SCHEMA, ROW, ROW | unknown, ROW | linear)
    for load in (load_tpot, load_ttft):
        batches = load(folder)
        refused = [batch.refusal for batch in batches if batch.refusal]
        assert len(batches) == 3
        assert any("nothing-7b" in reason for reason in refused)
        assert any("Mamba-2" in reason for reason in refused)
        (answered,) = [batch for batch in batches if not batch.refusal]
        assert 0 < answered.predict(None).time_s[0] < 1


@pytest.mark.parametrize(
    ("backend", "stated", "name"),
    [
        ("vllm", "0.18.0", "vllm@0.18.0"),
        ("trtllm", "0.8.1.post2", "tensorrt-llm@1.2.0rc6.post2"),  # of the container that holds it
        ("sglang", "", "sglang@0.5.5"),
    ],
)
def test_a_row_is_asked_of_its_engine_s_version(backend, stated, name):
    assert served_engine({"backend": backend, "backend_version": stated}) == name


def counted(tp, dp, expert_tp, ep, name="a") -> dict[str, object]:
    """A row of an H200 node with ranks."""
    counts = dict(zip(COUNTS, (tp, dp, expert_tp, ep), strict=True))
    return ROW | counts | {"id": name}


@pytest.mark.parametrize(
    ("stated", "ranks"),
    [
        ((8, 1, 8, 1), Ranks(8, 1, 1)),
        ((8, 1, 1, 8), Ranks(8, 1, 8)),
        ((8, 1, 1, 1), Ranks(8, 1, 1)),
        ((64, 1, 8, 8), Ranks(8, 1, 8)),
        ((1, 64, 8, 8), Ranks(1, 8, 8)),
        ((1, 8, 1, 8), Ranks(1, 8, 8)),
        ((4, 4, 1, 16), Ranks(1, 4, 4)),
        ((1, np.nan, 2, 1), Ranks(1, 2, 2)),
        ((2, np.nan, 4, 1), Ranks(2, 2, 4)),
        ((4, 1, 2, 2, "x_tp2_ep2_1"), Ranks(2, 1, 2)),
        ((4, 1, 2, 2, "x_tp4_0_ep2_0_1"), Ranks(4, 1, 2)),
    ],
)
def test_ranks_of_a_row(stated, ranks):
    assert ranks_of(counted(*stated), "", {}) == ranks


def test_ranks_that_could_be_either_are_read_as_their_source_does():
    doubtful, sure = counted(2, 2, 1, 4), counted(4, 4, 1, 16)
    with pytest.raises(InvalidValueError, match=r"4 devices .*or 2 devices"):
        ranks_of(doubtful, "", usual_reading([doubtful]))
    assert ranks_of(doubtful, "", usual_reading([doubtful, sure])) == Ranks(1, 2, 2)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("nvidia/Llama-3.1-8B-Instruct-NVFP4", "llama-3.1-8b"),
        ("Qwen/Qwen3-235B-A22B-Thinking-2507-FP8", "qwen3-235b-a22b"),
        ("nvidia/DeepSeek-R1-0528-FP4-v2", "deepseek-v3"),
        ("RedHatAI/Qwen3-8B-FP8-dynamic", "qwen3-8b"),
    ],
)
def test_names_lose_organisation_format_and_date(path, name):
    assert served_workload(path).name == name


def test_a_rows_format_wins_over_the_checkpoints():
    workload = served_workload("deepseek-ai/DeepSeek-V3")
    form = stated_formats({"gemm_quant_mode": "nvfp4", "moe_quant_mode": "nvfp4"})
    assert served_precision(workload, "deepseek-ai/DeepSeek-V3", *form).weight.bytes < 0.7
    block = stated_formats({"gemm_quant_mode": "fp8", "moe_quant_mode": "fp8_block"})
    assert block == ("fp8_block", "")
    apart = stated_formats({"gemm_quant_mode": "fp8", "moe_quant_mode": "nvfp4"})
    found = served_precision(workload, "deepseek-ai/DeepSeek-V3", *apart)
    assert found.weight.bytes == pytest.approx(1.0, rel=0.01)
    assert found.of_experts.weight.bytes < 0.7


def test_pairs_that_differ_in_one_thing_are_counted_once(tmp_path):
    slow = ROW | {"precision": "bfloat16", "silicon_tpot_ms": 9.0}
    near = ROW | {"backend": "sglang", "silicon_tpot_ms": 6.1}
    folder_of(tmp_path, TOKENS_SCHEMA, ROW, slow, near)
    (score,) = validate(["serving-tpot"], tmp_path).suites
    pairs = {row["choice"]: row for row in findings(score.rows)["pairs"]}
    assert (pairs["format"]["pairs"], pairs["engine"]["pairs"]) == (1, 0)
    assert pairs["format"]["in_order_fraction"] == 1


def test_more_users_wait_longer_for_each_token(served):
    lengths = ("uniform:410-512", "uniform:51-64")
    few, many = (closed_loop(served, Load(users, *lengths)) for users in (1, 32))
    assert few.tpot_s < many.tpot_s
    assert few.ttft_s < many.ttft_s


def test_a_split_system_is_bound_by_its_prefill(served):
    load = Load(16, "1000", "10")
    one, four = (split(served, count, served, 1, load) for count in (1, 4))
    prompt_s = plan_of(served).steps.step(8000, 8 * 500_500, 0, 0.0)[0] / 8
    # users that wait for a replica take its time among them
    assert one.ttft_s + 10 * one.tpot_s == pytest.approx(16 * prompt_s, rel=0.15)
    assert four.ttft_s < one.ttft_s


def test_rows_of_unknown_replicas_span_those_there_may_be(tmp_path):
    apart = ROW | {"mode": "disagg", "silicon_data_source": "silicon_concurrency=8;"}
    sizes = {"prefill_tp_size": 1, "decode_tp_size": 1}
    stated = [
        apart | sizes | {"prefill_num_workers": one, "decode_num_workers": other}
        for one in (1, 7)
        for other in (1, 8)  # no more than users
    ]
    (batch,) = load_tpot(folder_of(tmp_path, TOKENS_SCHEMA, apart | sizes, *stated))
    open_s, *known_s = batch.predict(None).time_s
    assert open_s == pytest.approx(np.sqrt(min(known_s) * max(known_s)))
    ranged, *sigmas = batch.predict(None).log_sigma
    half = np.log(max(known_s) / min(known_s)) / 2
    assert ranged == pytest.approx(max(sigmas) + half / Z90, rel=0.05)


def test_servers_start_as_the_harness_asks_for_their_board_format_and_ranks(tmp_path):
    """FP8 weights of DeepSeek-V3 fit on four B200 with the share of memory of that script alone,
    and prompts of 8,192 tokens find room beside those in flight.
    """
    model = {"model_path": "deepseek-ai/DeepSeek-V3", "system": "b200_sxm", "isl": 8192}
    four = ROW | model | dict(zip(COUNTS, (4, 1, 4, 1), strict=True)) | {"backend": "sglang"}
    eight = four | dict(zip(COUNTS, (8, 1, 8, 1), strict=True)) | {"backend": "trtllm"}
    batches = load_ttft(folder_of(tmp_path, TOKENS_SCHEMA, four, eight))
    (times,) = [batch.predict(None).time_s for batch in batches]
    assert (times < 5).all()


def test_energy_of_a_steady_batch_is_power_over_rate(served):
    figures = steady_state(plan_of(served), 16, 300, 1000)
    assert figures["J per token"] * figures["tokens per s"] == pytest.approx(figures["power"])


def test_energy_rows_of_images_are_refused(tmp_path):
    row = {
        "gpu_model": "H100",
        "model_id": "meta-llama/Llama-3.1-8B-Instruct",
        "weight_precision": "bfloat16",
        "max_num_seqs": 8,
        "num_gpus": 1,
        "expert_parallel": 1,
        "avg_output_len": 400,
        "energy_per_token_joules": 0.5,
        "avg_power_watts": 500,
        "output_throughput_tokens_per_sec": 1000,
    }
    tasks = [row | {"task": task} for task in ("lm-arena-chat", "image-chat")]
    batches = load_energy(folder_of(tmp_path, ENERGY_SCHEMA, *tasks))
    assert sorted(len(batch) for batch in batches) == [3, 3]
    assert any("image-chat" in batch.refusal for batch in batches)


def test_layers_of_the_tpu_are_read_together(tmp_path):
    """Whatever layer the compiler's merged kernel is booked under; what cannot be is refused."""
    layers = [
        {"layer_name": name, "input": tokens, "latency(ns)": ns}
        for tokens, times in ((1, (30_000, 300_000, 100)), (2, (30_000, 200_000, 100)))
        for name, ns in zip(("q_proj", "down_proj", "embedding"), times, strict=True)
    ]
    batches = load_layers(folder_of(tmp_path, TPU_LAYERS, *layers))
    asked = [batch for batch in batches if not batch.refusal and len(batch)]
    assert [batch.measured_s.tolist() for batch in asked] == [[pytest.approx(3.3e-4)]]
    reasons = {batch.refusal.split(":")[0] for batch in batches if batch.refusal}
    assert len(reasons) == 2


def test_attention_over_shared_caches_is_refused(tmp_path):
    column = "time_stats.attn_decode.median"
    rows = [
        {"is_prefill": "False", "batch_size": batch, "kv_cache_size": 1024, column: 0.02}
        | {"prefill_chunk_size": 0}
        for batch in (1, 8)
    ]
    batches = load_layers(folder_of(tmp_path, A6000, *rows))
    assert sorted(bool(batch.refusal) for batch in batches) == [False, True]
    (alone,) = [batch for batch in batches if not batch.refusal]
    # the kernel of prompts: 32 blocks of the 84 multiprocessors, each over all keys
    assert 30e-6 < alone.predict(None).time_s[0] < 100e-6


def test_a_server_keeps_a_share_of_its_offline_rate(tmp_path):
    row = {
        "round": "v3.0",
        "submitter": "a",
        "system": "s",
        "accelerator": "NVIDIA L4",
        "model": "resnet50",
        "valid": "VALID",
        "framework": "TensorRT",
        "acc_per_node": 1,
        "nodes": 1,
    }
    offline = row | {"scenario": "offline", "unit": "samples/s", "samples_per_s": 12_000}
    server = row | {"scenario": "server", "unit": "queries/s", "samples_per_s": 11_000}
    alone = server | {"system": "another"}
    batches = load_mlperf(folder_of(tmp_path, MLPERF_SCHEMA, offline, server, alone))
    (answered,) = [batch for batch in batches if not batch.refusal]
    assert answered.measured_s[0] == pytest.approx(11 / 12)
    assert 0.2 < answered.predict(None).time_s[0] <= 1
    assert BatchTimes((1, 2), (1.0, 1.5)).saturated_rate_per_s(2) == pytest.approx(2 / 1.5)


def test_a_card_is_predicted_with_the_others_overhead(tmp_path):
    rows = [
        {
            "hardware": card,
            "model": "Llama-3.1-8B",
            "input_toks": 200,
            "output_toks": 20,
            "queued_ts": 10 + place,
            "first_token_ts": 10.1 + place,
            "last_token_ts": 10.1 + place + 19 * token_s,
        }
        for card, token_s in (("RTX4090", 0.02), ("RTXPRO6000", 0.015))
        for place in range(4)
    ]
    batches = load_requests(folder_of(tmp_path, REQUESTS_SCHEMA, *rows))
    found = {
        batch.device: dict(zip(batch.group.tolist(), batch.predict(None).time_s, strict=True))
        for batch in batches
    }
    assert len(found) == 2
    assert np.all([times["TPOT mean"] > 0.01 for times in found.values()])

"""Whether lines fit models and devices, and what they cost."""

from __future__ import annotations

import pytest

from accelsim.economics.device_price import PriceChoice
from accelsim.errors import InvalidValueError, UnknownNameError
from accelsim.handover.check import LineQuestion, check_line, model_of
from accelsim.serving.loads.arrivals import Arrivals
from accelsim.serving.options import ServingOptions
from accelsim.serving.serve import serve
from accelsim.training.estimate import train

LOAD = Arrivals(rate_per_s=2, requests=60, prompt="300", output="30")


def on(device, **others):
    return LineQuestion(device, load=LOAD, **others)


def test_a_line_and_the_command_that_it_stands_for_have_one_answer():
    text = "vllm serve meta-llama/Llama-3.2-1B -tp 2 -dp 2 --max-num-seqs 64 --max-model-len 4096"
    found = check_line(text, on("l4", price=PriceChoice(usd_per_hour=1.5)))
    options = ServingOptions("vllm@0.19.0", replicas=2, tp=2, max_seqs=64)
    same = serve("llama-3.2-1b", "l4", LOAD, options, usd_per_hour=1.5)
    assert found.fits
    assert found.devices == 4
    assert found.cost_usd_per_hour == 6.0
    for name in ("ttft_s.p99", "tpot_s.p50", "output_tokens_per_s", "cost_usd_per_month"):
        assert found.metrics[name] == same.metrics[name]


@pytest.mark.parametrize(
    ("text", "device", "option"),
    [
        ("vllm serve meta-llama/Llama-3.1-8B -tp 3", None, "--tensor-parallel-size"),
        ("vllm serve meta-llama/Llama-3.1-8B -pp 33", None, "--pipeline-parallel-size"),
        ("vllm serve meta-llama/Llama-3.1-8B --max-model-len 200000", None, "--max-model-len"),
        ("vllm serve meta-llama/Llama-3.1-70B", "h100-sxm-80gb", "memory"),
        ("vllm serve meta-llama/Llama-3.1-8B", "l4", "--max-model-len"),
        ("vllm serve meta-llama/Llama-3.1-8B --gpu-memory-utilization 1.2", "l4", None),
        ("vllm serve meta-llama/Llama-3.1-8B --max-num-seqs 0", "l4", "--max-num-seqs"),
        ("trtllm-serve meta-llama/Llama-3.1-8B", "mi300x", "memory"),
    ],
)
def test_what_does_not_fit_is_named_at_its_option(text, device, option):
    found = check_line(text, on(device))
    assert not found.fits
    assert found.problems[-1].option == (option or "--gpu-memory-utilization")


def test_a_cache_smaller_than_the_context_stops_vllm_alone():
    for text in (
        "vllm serve meta-llama/Llama-3.1-8B --max-model-len 131072",
        "python -m sglang.launch_server --model meta-llama/Llama-3.1-8B --context-length 131072",
    ):
        found = check_line(text, on("l4"))
        assert found.fits == ("sglang" in text)
        assert any("the cache holds" in str(one) for one in (*found.problems, *found.notes))
    held = int(
        check_line("vllm serve meta-llama/Llama-3.1-8B", on("l4")).found["kv_cache_tokens"].value
    )
    fitting = f"vllm serve meta-llama/Llama-3.1-8B --max-model-len {held}"
    assert check_line(fitting, on("l4")).fits


def test_layouts_of_experts_are_those_of_the_engine():
    sglang = "python -m sglang.launch_server --model deepseek-ai/DeepSeek-V3 --tp 8 --ep 8"
    apart = check_line(f"{sglang} --dp 8 --enable-dp-attention", on("h200-sxm-141gb"))
    assert (apart.devices, apart.fits) == (8, True)
    assert apart.inputs["options"]["dp"] == 8
    vllm = check_line("vllm serve deepseek-ai/DeepSeek-V3 -dp 8 -ep", on("h200-sxm-141gb"))
    assert (vllm.devices, vllm.inputs["options"]["ep"]) == (8, 8)


def test_a_name_says_the_format_of_its_checkpoint():
    assert model_of("nvidia/Llama-3.1-8B-Instruct-FP8")[1] == "fp8"
    found, written = model_of("Qwen/Qwen3-235B-A22B-Instruct-2507-FP8")
    assert (found.name, written) == ("qwen3-235b-a22b", "fp8")
    assert model_of("meta-llama/Llama-3.1-8B-Instruct")[1] is None
    with pytest.raises(UnknownNameError, match="workload"):
        model_of("nobody/Nothing-FP8")
    found = check_line("vllm serve RedHatAI/Llama-3.1-8B-Instruct-FP8", on("h100-sxm-80gb"))
    assert found.settings["precision"] == "fp8"


def test_a_trainers_line_is_the_plan_that_it_says():
    text = (
        "torchrun --nnodes 2 --nproc-per-node 8 pretrain_gpt.py --tensor-model-parallel-size 4"
        " --sequence-parallel --micro-batch-size 1 --global-batch-size 64 --seq-length 4096"
        " --use-distributed-optimizer --num-layers 32 --bf16"
    )
    found = check_line(text, LineQuestion("h100-sxm-80gb", "llama-3.1-8b"))
    same = train(
        "llama-3.1-8b",
        device="h100-sxm-80gb",
        gpus=16,
        plan="tp=4,sp=1,zero=1",
        global_batch=64,
        seq_len=4096,
        stack="megatron",
        precision="bf16",
    )
    assert found.fits
    assert found.metrics["iteration_s"].value == pytest.approx(same.iteration_s)
    wrong = check_line(text.replace("32", "40"), LineQuestion("h100-sxm-80gb", "llama-3.1-8b"))
    assert wrong.problems[0].option == "--num-layers"
    odd = check_line(
        text.replace("size 4", "size 3"), LineQuestion("h100-sxm-80gb", "llama-3.1-8b")
    )
    assert not odd.fits


def test_settings_of_a_file_count_as_those_of_the_line(tmp_path):
    path = tmp_path / "train.toml"
    path.write_text("[training]\nlocal_batch_size = 1\nseq_len = 4096\n[compile]\nenable = true\n")
    text = f"torchrun --nproc-per-node 8 -m torchtitan.train --job.config_file {path}"
    asked = LineQuestion("h100-sxm-80gb", "llama-3.1-8b")
    whole = check_line(f"{text} --training.seq_len 8192", asked)
    assert (whole.settings["local_batch"], whole.settings["seq_len"]) == (1, 8192)
    path.write_text("[training]\nlocal_batch = 1\n")
    assert check_line(text, asked).problems[0].option == "--training.local_batch"
    path.write_text("[training")
    with pytest.raises(InvalidValueError, match="TOML"):
        check_line(text, asked)


def test_names_that_nobody_knows_are_refused():
    with pytest.raises(InvalidValueError, match="model"):
        check_line("torchrun --nproc-per-node 8 pretrain_gpt.py")
    for asked in (LineQuestion("h900"), LineQuestion("l4", "llama-9")):
        with pytest.raises(UnknownNameError):
            check_line("vllm serve meta-llama/Llama-3.1-8B", asked)

"""Folders of what carries a recommendation out."""

from __future__ import annotations

import json
import os
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from accelsim.capacity.assignment import Assignment, of_training
from accelsim.catalog.workloads import workload
from accelsim.errors import OutputError
from accelsim.handover.check import LineQuestion, check_line, line_text
from accelsim.handover.engines import serving_options
from accelsim.handover.folder import hand_over, repository
from accelsim.handover.launchers import launcher
from accelsim.handover.line import read_line
from accelsim.serving.loads.arrivals import Arrivals
from accelsim.training.estimate import train
from accelsim.training.length import RunLength

BOARD = "h100-sxm-80gb"
OFFER = "hyperstack/us-1/n3-H100-SXM5x8"
LOAD = Arrivals(rate_per_s=1, requests=20, prompt="200", output="20")
SCHEMA = json.loads(Path(__file__).with_name("skypilot_schema.json").read_text())


def served(software="vllm 0.19", precision="bf16", offer=OFFER, **said):
    said = {"tp": 1, "pp": 1, "ep": 1, "dp": 1, "replicas": 1, "max_seqs": 64} | said
    said = {"max_batch_tokens": 8192, "max_context": 3000} | said
    devices = said["tp"] * said["dp"] * said["replicas"]
    place = offer, max(1, -(-devices // 8)), 100.0
    return Assignment(
        "chat", "serve", "llama-3.1-8b", BOARD, devices, software, precision, said, *place
    )


def written(one, folder, command="accelsim plan x.yaml"):
    hand_over([one] if isinstance(one, Assignment) else one, folder, command, force=True)
    return folder


def checked_sky(folder):
    task = yaml.safe_load((folder / "sky.yaml").read_text())
    __import__("jsonschema").validate(task, SCHEMA)
    return task


@pytest.mark.parametrize("software", ["vllm 0.19", "vllm 0.10", "sglang 0.5.9", "tensorrt-llm 1.2"])
@settings(max_examples=12, deadline=None)
@given(
    tp=st.sampled_from([1, 2, 4, 8]),
    replicas=st.integers(1, 9),
    seqs=st.integers(1, 2048),
    context=st.integers(1, 40_000),
    precision=st.sampled_from(["bf16", "fp16", "fp8", "w4a16"]),
    kv=st.sampled_from(["bf16", "fp8"]),
)
def test_what_is_written_passes_its_own_check(
    tmp_path_factory, software, tp, replicas, seqs, context, precision, kv
):
    said = {"tp": tp, "replicas": replicas, "max_seqs": seqs, "max_context": context}
    one = served(software, precision, **said, kv_format=kv)
    folder = written(one, tmp_path_factory.mktemp("out"))
    found = check_line(line_text(str(folder / "serve.sh")))
    assert found.problems == ()
    read = found.settings
    assert (read["tp"], read["max_seqs"]) == (tp, seqs)
    assert context <= read["max_context"] < 2 * context or context == 1
    task = checked_sky(folder)
    copies = read.get("copies", 1)
    assert task["service"]["replicas"] * max(copies, 8 // tp) >= replicas
    assert copies * tp <= 8


@pytest.mark.parametrize("software", ["vllm 0.19", "sglang 0.5.9"])
@pytest.mark.parametrize(("tp", "dp"), [(1, 8), (2, 4), (4, 2)])
def test_shared_experts_are_read_back_as_they_were_asked(tmp_path, software, tp, dp):
    one = served(software, tp=tp, dp=dp, ep=8)
    line = read_line(line_text(str(written(one, tmp_path) / "serve.sh")))
    options = serving_options(line.settings, "vllm")
    assert line.problems == ()
    assert (options.tp, options.dp, options.ep, options.replicas) == (tp, dp, 8, 1)


@pytest.mark.parametrize("software", ["vllm 0.19", "sglang 0.5.9"])
@pytest.mark.parametrize("shares", [True, False, None])
def test_prefixes_are_shared_as_was_asked(tmp_path, software, shares):
    said = {} if shares is None else {"prefix_cache": shares}
    line = read_line(line_text(str(written(served(software, **said), tmp_path) / "serve.sh")))
    read = serving_options(line.settings, "vllm").prefix_cache
    assert read is (None if "sglang" in software and shares else shares)  # shares by itself


def test_a_line_has_the_price_and_times_of_the_load_it_was_written_for(tmp_path):
    from accelsim.capacity.assignment import of_serving
    from accelsim.serving.options import ServingOptions
    from accelsim.serving.serve import serve

    options = ServingOptions(tp=2, replicas=2, max_seqs=32, memory_fraction=0.8)
    same = serve("llama-3.1-8b", BOARD, LOAD, options, precision="fp8", kv_format="fp8")
    folder = written(of_serving(same), tmp_path)
    found = check_line(line_text(str(folder / "serve.sh")), LineQuestion(BOARD, load=LOAD))
    assert found.fits
    for name in ("tpot_s.p50", "ttft_s.p99", "cost_usd_per_month"):
        assert found.metrics[name].value == pytest.approx(same.metrics[name].value)


@pytest.mark.parametrize(
    ("stack", "plan"),
    [
        ("torchtitan", "zero=3"),
        ("torchtitan", "zero=3,shard_group=8"),
        ("torchtitan", "zero=3,tp=2,sp=1,recompute=full"),
        ("torchtitan", "zero=0"),
        ("megatron", "tp=4,sp=1,zero=1"),
        ("megatron", "tp=2,pp=2,schedule=interleaved,chunks=2,recompute=full"),
        ("megatron", "tp=2,cp=2,zero=3"),
        ("maxtext", "zero=3"),
    ],
)
def test_a_trainers_files_say_the_plan(tmp_path, monkeypatch, stack, plan):
    device = "tpu-v5p" if stack == "maxtext" else BOARD
    found = train(
        "llama-3.2-1b",
        device=device,
        gpus=16,
        plan=plan,
        global_batch=64,
        seq_len=2048,
        stack=stack,
        precision="bf16",
        length=RunLength(tokens=1e8),
    )
    folder = written(of_training(found), tmp_path)
    monkeypatch.chdir(folder)
    again = check_line(line_text("train.sh"), LineQuestion(device, "llama-3.2-1b"))
    assert again.problems == ()
    assert again.devices == 16
    assert again.metrics["iteration_s"].value == pytest.approx(found.iteration_s, rel=1e-6)
    task = checked_sky(folder)
    if stack == "maxtext":  # 16 chips of two cores in one slice
        assert task["resources"]["accelerators"] == "tpu-v5p-32"
        assert "num_nodes" not in task
    else:
        assert task["num_nodes"] == 2


def test_settings_of_deepspeed_are_those_of_its_list(tmp_path):
    found = train(
        "llama-3.2-1b",
        device=BOARD,
        gpus=8,
        plan="zero=2,optimizer_offload=1",
        global_batch=64,
        seq_len=2048,
        stack="deepspeed",
        precision="bf16",
    )
    said = json.loads((written(of_training(found), tmp_path) / "deepspeed.json").read_text())
    zero = said["zero_optimization"]
    assert (zero["stage"], zero["offload_optimizer"]["device"]) == (2, "cpu")
    dp = said["train_batch_size"] // (
        said["train_micro_batch_size_per_gpu"] * said["gradient_accumulation_steps"]
    )
    assert dp == 8  # deepspeed/runtime/config.py asserts it
    known = launcher("deepspeed").options
    for section, value in said.items():
        names = [f"{section}.{name}" for name in value] if isinstance(value, dict) else [section]
        assert all(any(one.startswith(name) for one in known) for name in names)


def test_settings_of_torchtitan_are_those_of_its_list(tmp_path):
    found = train(
        "llama-3.2-1b",
        device=BOARD,
        gpus=8,
        plan="zero=3",
        global_batch=64,
        seq_len=2048,
        stack="torchtitan",
        precision="fp8",
    )
    tables = tomllib.loads((written(of_training(found), tmp_path) / "train.toml").read_text())
    known = launcher("torchtitan").options
    assert all(f"--{table}.{name}" in known for table, said in tables.items() for name in said)
    assert tables["model"]["converters"] == ["quantize.linear.float8"]


def test_spot_and_clouds_that_skypilot_knows(tmp_path):
    spot = served(offer="gcp/us-central1/a3-highgpu-8g:spot", replicas=4)
    resources = checked_sky(written(spot, tmp_path / "a"))["resources"]
    assert resources["infra"] == "gcp/us-central1"
    assert resources["use_spot"] is True
    other = checked_sky(written(served(), tmp_path / "b"))["resources"]
    assert other["accelerators"] == "H100:8"
    own = checked_sky(written(served(offer="owned/site/node"), tmp_path / "c"))["resources"]
    assert own == {"infra": "ssh", "ports": 8000}


def test_skypilot_itself_reads_what_is_written(tmp_path):
    sky = pytest.importorskip(
        "sky", reason="skypilot is not installed: the excerpt of its schema stands in"
    )
    task = sky.Task.from_yaml(str(written(served(), tmp_path) / "sky.yaml"))
    assert task.service is not None


def test_several_have_a_folder_each(tmp_path):
    one = served()
    made = written([one, replace(one, name="Batch Job/2", task="batch", software="")], tmp_path)
    assert sorted(path.name for path in made.iterdir()) == ["README.md", "batch-job-2", "chat"]
    assert "accelsim plan x.yaml" in (made / "README.md").read_text()
    assert not (made / "batch-job-2" / "serve.sh").exists()


def test_what_a_line_cannot_say_is_said_in_words(tmp_path):
    text = (
        written(served("tensorrt-llm 1.2", "fp8", replicas=4), tmp_path) / "README.md"
    ).read_text()
    assert "take a checkpoint in fp8" in text
    assert "start 4 copies" in text


def test_what_no_option_says_is_named(tmp_path):
    found = train(
        "llama-3.2-1b",
        device=BOARD,
        gpus=8,
        plan="zero=1,optimizer_offload=1,lora_rank=8",
        global_batch=64,
        seq_len=2048,
        stack="torchtitan",
    )
    text = (written(of_training(found), tmp_path) / "README.md").read_text()
    assert "no option says zero=1" in text
    assert "no option says lora_rank=8" in text
    assert "no option says optimizer_offload=True" in text


def test_what_a_server_is_asked_beside_its_line_is_named(tmp_path):
    from accelsim.capacity.assignment import of_serving
    from accelsim.serving.options import Adapters, ServingOptions
    from accelsim.serving.serve import serve

    options = ServingOptions("tensorrt-llm", adapters=Adapters(4), prefix_cache=False)
    made = of_serving(serve("llama-3.2-1b", BOARD, LOAD, options))
    assert made.unsaid == ("adapters",)
    text = (written(made, tmp_path) / "README.md").read_text()
    assert "no option says adapters" in text
    assert "no option says prefix_cache" in text


def test_hostile_names_stay_words(tmp_path):
    name = "x'; rm -rf / --y $(id) | `id`"
    path = tmp_path / f"{name.replace('/', '')}\n.yaml"
    path.write_text(Path("workloads/llama-3.2-1b.yaml").read_text().partition("published:")[0])
    folder = written(replace(served(), name=name, workload=str(path)), tmp_path / "out")
    assert read_line((folder / "serve.sh").read_text()).arguments == ("llama-3.2-1b",)
    assert checked_sky(folder)["name"].replace("-", "").isalnum()


def test_a_folder_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    out = tmp_path / "plan"
    hand_over([served()], out, "x")
    with pytest.raises(OutputError, match="--force"):
        hand_over([served()], out, "x")
    (out / "mine.txt").write_text("kept")
    hand_over([served(replicas=2)], out, "x", force=True)
    assert (out / "mine.txt").read_text() == "kept"
    before = {path.name: path.read_text() for path in out.iterdir()}

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OutputError, match="No space"):
        hand_over([served()], out, "x", force=True)
    assert {path.name: path.read_text() for path in out.iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["plan"]


def test_a_file_or_a_missing_folder_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    for path, words in ((tmp_path / "file", "is a file"), (tmp_path / "a" / "b", "no folder")):
        with pytest.raises(OutputError, match=words):
            hand_over([served()], path, "x")
    if os.geteuid():
        tmp_path.chmod(0o500)
        with pytest.raises(OutputError, match="not writable"):
            hand_over([served()], tmp_path / "c", "x")


def test_a_models_repository_is_that_of_its_published_figures():
    assert repository(workload("llama-3.1-8b")) == "meta-llama/Llama-3.1-8B"
    assert repository(workload("llama-3.3-70b")) == "meta-llama/Llama-3.3-70B-Instruct"
    assert repository(workload("resnet-50")) is None

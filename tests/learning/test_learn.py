"""Learning from files of measured runs: what is read, what an answer becomes, what is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from accelsim import Arrivals
from accelsim.cli.entry import main
from accelsim.errors import AccelsimError, InvalidValueError, ProfileError
from accelsim.estimation.estimate import estimate
from accelsim.estimation.estimate_many import estimate_many
from accelsim.estimation.learned import read_learned
from accelsim.files.datafile import read_yaml
from accelsim.learning.learn import Told, learn
from accelsim.serving.options import ServingOptions
from accelsim.serving.serve import serve
from accelsim.training.estimate import train

#: Made from the code of vllm bench serve; not recorded.
SAMPLE = "examples/learn/vllm_bench.json"
DATA = Path(__file__).parent / "data"
H100 = Told(device="h100-sxm-80gb")


def sample():
    with open(SAMPLE, encoding="utf-8") as stream:  # noqa: PTH123
        return json.load(stream)


def table(tmp_path, *rows, header="model,device,batch,metric,value"):
    path = tmp_path / "runs.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def profile_of(tmp_path, found):
    path = tmp_path / "mine.json"
    path.write_text(found.profile.model_dump_json())
    return path


@pytest.fixture(scope="module")
def mine(tmp_path_factory):
    return profile_of(tmp_path_factory.mktemp("learned"), learn([SAMPLE]))


def served(**keywords):
    load = Arrivals(users=32, prompt="1024", output="256", requests=320)
    return serve("llama-3.1-8b", "h100-sxm-80gb", load, ServingOptions(), **keywords)


def test_a_server_is_predicted_as_it_was_measured_and_its_interval_narrows(mine):
    before, after = served(), served(learned=mine)
    measured = {"tpot_s.mean": 11.9e-3, "ttft_s.mean": 421.5e-3}
    for name, truth in measured.items():
        off = [abs(math.log(r.metrics[name].value / truth)) for r in (before, after)]
        assert off[1] < 0.6 * off[0]
        widths = [math.log(r.metrics[name].high / r.metrics[name].low) for r in (before, after)]
        assert widths[1] < 0.85 * widths[0]


def test_a_run_of_the_same_system_is_corrected_and_others_are_not(tmp_path):
    plain = estimate("resnet-50", "t4", batch=8)
    slow = [f"resnet-50,t4,{batch},latency_ms,{1e3 * 1.3 * t}" for batch, t in times("resnet-50")]
    mine = profile_of(tmp_path, learn([table(tmp_path, *slow)]))
    found = estimate("resnet-50", "t4", batch=8, learned=mine)
    assert 1.2 < found.latency_s / plain.latency_s < 1.3
    assert found.energy_j / plain.energy_j == pytest.approx(found.latency_s / plain.latency_s)
    assert found.latency_high_s / found.latency_low_s < plain.latency_high_s / plain.latency_low_s
    for other in (("bert-base", "mi300x"), ("resnet-50", "epyc-9654"), ("resnet-50", "tpu-v5e")):
        alone, beside = (estimate(*other, learned=one) for one in (None, mine))
        assert beside.latency_s == alone.latency_s


def times(model):
    return [(b, estimate(model, "t4", batch=b).latency_s) for b in (1, 4, 16)]


def test_runs_as_predicted_change_no_answer_and_narrow_it(tmp_path):
    same = [f"resnet-50,t4,{batch},latency_s,{t!r}" for batch, t in times("resnet-50")]
    mine = profile_of(tmp_path, learn([table(tmp_path, *same)]))
    plain, found = (estimate("resnet-50", "t4", batch=8, learned=one) for one in (None, mine))
    assert found.latency_s == pytest.approx(plain.latency_s, rel=1e-12)
    assert found.latency_high_s < plain.latency_high_s


def test_the_order_of_rows_and_rows_twice_give_the_same_bits(tmp_path):
    rows = [f"resnet-50,t4,{b},latency_s,{1.2 * t!r}" for b, t in times("resnet-50")]
    found = []
    for order in (rows, rows[::-1], [*rows, *rows]):
        path = profile_of(tmp_path, learn([table(tmp_path, *order)]))
        found.append(estimate("resnet-50", "t4", batch=8, learned=path).latency_s)
    assert found[0] == found[1] == found[2]


def test_a_wrong_unit_is_named(tmp_path):
    rows = [f"resnet-50,t4,{b},latency_ms,{1e3 * t!r}" for b, t in times("resnet-50")]
    wrong = f"resnet-50,t4,32,latency_ms,{estimate('resnet-50', 't4', batch=32).latency_s!r}"
    found = learn([table(tmp_path, *rows, wrong)]).rows()
    assert [row["source"] for row in found if row["is_far"]] == ["runs.csv, line 5"]


def test_throughput_and_tables_of_servers_are_read(tmp_path):
    header = "model,device,stack,users,prompt,output,metric,value,tp"
    path = table(
        tmp_path,
        "llama-3.1-8b,h100-sxm-80gb,vllm,4,512,64,tpot_ms,8.5,1",
        "llama-3.1-8b,h100-sxm-80gb,vllm,4,512,64,ttft_ms,60,1",
        header=header,
    )
    assert {row["phase"] for row in learn([path]).rows()} == {"decode", "prompt"}
    rate = table(tmp_path, "resnet-50,t4,8,throughput_per_s,1000")
    assert learn([rate]).rows()[0]["measured_s"] == pytest.approx(0.008)


def test_sglang_writes_an_object_a_line(tmp_path):
    lines = [sample() | {"backend": "sglang-oai", "max_concurrency": users} for users in (8, 32)]
    for line in lines:
        del line["model_id"], line["date"]
    path = tmp_path / "sglang.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    found = learn([path], Told(model="llama-3.1-8b")).rows()
    assert {row["stack"].split()[0] for row in found} == {"sglang"}
    assert len(found) == 4


def report(change=()):
    """Made from llm-d-benchmark's schema_v0_2.py and its example; not recorded."""
    data = read_yaml(DATA / "llmd_report.yaml")
    for keys, value in change:
        *outer, last = keys.split(".")
        inner = data
        for key in outer:
            inner = inner[int(key)] if key.isdigit() else inner[key]
        inner[last] = value
    return data


def written(tmp_path, data, name="runs.json"):
    path = tmp_path / name
    path.write_text(json.dumps(data))
    return path


def test_a_report_of_llm_d_is_read_with_its_units_and_replicas():
    found = {row["phase"]: row for row in learn([DATA / "llmd_report.yaml"]).rows()}
    assert found["decode"]["measured_s"] == pytest.approx(9.1e-3)
    assert found["prompt"]["measured_s"] == pytest.approx(55e-3)
    assert found["decode"]["device"] == "h100-sxm-80gb"


STANDARD = "scenario.stack.0.standardized"
LATENCY = "results.request_performance.aggregate.latency.time_per_output_token"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("version", "0.3"), "version"),
        ((f"{LATENCY}.units", "min"), "units"),
        ((f"{LATENCY}.mean", -1.0), "mean"),
        ((f"{STANDARD}.role", "prefill"), "stack"),
        ((f"{STANDARD}.accelerator", {}), "--device"),
        (("scenario.load.standardized.prefix", {"num_groups": 3}), "prefix"),
        (("scenario.load.standardized.rate_qps", None), "rate_qps"),
        (("results", {}), "request_performance"),
    ],
)
def test_a_report_that_says_something_else_is_refused_by_field(tmp_path, change, message):
    with pytest.raises(AccelsimError, match=message):
        learn([written(tmp_path, report([change]))])


def test_tests_of_llama_bench_are_prompts_and_tokens(tmp_path):
    """Recorded by llama.cpp's authors (tools/llama-bench/README.md), further fields left out."""
    rows = learn([DATA / "llama_bench.json"]).rows()
    found = {row["phase"]: row for row in rows}
    assert found["prompt"]["measured_s"] == pytest.approx(0.07213564)
    assert found["decode"]["measured_s"] == pytest.approx(1.07676788 / 128)
    assert {(row["model"], row["device"]) for row in rows} == {("qwen2.5-7b", "rtx-4080")}
    assert all(0.5 < row["measured_s"] / row["predicted_s"] < 2.0 for row in rows)
    lines = tmp_path / "bench.jsonl"
    tests = json.loads((DATA / "llama_bench.json").read_text())
    lines.write_text("\n".join(map(json.dumps, tests)))
    assert (
        learn([lines]).profile.runs[0].ratio
        == learn([DATA / "llama_bench.json"]).profile.runs[0].ratio
    )
    mine = profile_of(tmp_path, learn([lines]))
    asked = {"stack": "llama-cpp", "precision": "q4_k_m", "seq_len": 512, "output_len": 64}
    plain, corrected = (
        estimate("qwen2.5-7b", "rtx-4080", learned=one, **asked) for one in (None, mine)
    )
    off = [abs(one.time_per_output_token_s - 1.0768 / 128) for one in (plain, corrected)]
    assert off[1] < off[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"avg_ns": 0}, "avg_ns"),
        ({"n_prompt": -1}, "n_prompt"),
        ({"n_gen": 64}, "n_prompt"),
        ({"n_gpu_layers": 12}, "n_gpu_layers"),
        ({"model_filename": "ggml-model-q4_0.gguf"}, "ggml-model"),
        ({"gpu_info": "", "cpu_info": ""}, "--device"),
    ],
)
def test_a_test_of_llama_bench_that_says_too_little_is_refused(tmp_path, change, message):
    test = json.loads((DATA / "llama_bench.json").read_text())[0]
    with pytest.raises(AccelsimError, match=message):
        learn([written(tmp_path, [test | change])])


def test_first_tokens_of_a_burst_are_left_out(tmp_path):
    path = tmp_path / "burst.json"
    burst = sample() | {"max_concurrency": None, "mean_tpot_ms": 25.0}
    path.write_text(json.dumps(burst))
    assert [row["phase"] for row in learn([path]).rows()] == ["decode"]


def test_a_time_that_the_load_cannot_have_is_refused(tmp_path):
    """Of a burst, prompts make further tokens wait longer than that."""
    path = tmp_path / "burst.json"
    path.write_text(json.dumps(sample() | {"max_concurrency": None, "mean_tpot_ms": 2.0}))
    with pytest.raises(InvalidValueError, match="decode time"):
        learn([path])


def test_a_run_that_stands_twice_is_refused_by_name(tmp_path):
    row = "resnet-50,t4,8,latency_ms,9"
    found = learn([table(tmp_path, row, row)])
    assert len(found.profile.runs) == 1
    assert found.refused == {"runs.csv, line 3": "it is the run of runs.csv, line 2 again"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mean_tpot_ms": -1.0}, "mean_tpot_ms"),
        ({"mean_tpot_ms": 0.0}, "mean_tpot_ms"),
        ({"mean_ttft_ms": "fast"}, "mean_ttft_ms"),
        ({"completed": 0}, "completed"),
        ({"request_rate": "often"}, "request_rate"),
        ({"total_input_tokens": None}, "total_input_tokens"),
    ],
)
def test_a_damaged_benchmark_is_refused_by_field(tmp_path, change, message):
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(sample() | change))
    with pytest.raises(ProfileError, match=message):
        learn([path])


@pytest.mark.parametrize("text", ["", "[1, 2]", "{", "null", '{"a": 1}', "\x00"])
def test_what_is_no_benchmark_is_refused(tmp_path, text):
    path = tmp_path / "bench.json"
    path.write_text(text)
    with pytest.raises(AccelsimError):
        learn([path])


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("resnet-50,t4,8,latency_ms,-3", "latency_ms"),
        ("resnet-50,t4,8,latency_ms,0", "latency_ms"),
        ("resnet-50,t4,8,latency_ms,nan", "latency_ms"),
        ("resnet-50,t4,8,latency_ms,", "latency_ms"),
        ("resnet-50,t4,many,latency_ms,3", "batch"),
        ("resnet-50,t4,8,speed,3", "speed"),
    ],
)
def test_a_wrong_cell_is_refused_by_line_and_column(tmp_path, row, message):
    with pytest.raises(ProfileError, match=rf"line 2.*{message}"):
        learn([table(tmp_path, row)])


def test_a_column_nobody_knows_is_refused(tmp_path):
    path = table(
        tmp_path, "resnet-50,t4,8,latency_ms,3,1", header="model,device,batch,metric,value,x"
    )
    with pytest.raises(ProfileError, match="line 2: x: extra"):
        learn([path])


def test_a_row_that_cannot_be_predicted_is_refused_alone(tmp_path):
    found = learn([table(tmp_path, "resnet-50,t4,8,latency_ms,9", "nope,t4,8,latency_ms,9")])
    assert len(found.profile.runs) == 1
    assert "nope" in found.refused["runs.csv, line 3"]


def test_lines_and_results_that_say_nothing_are_refused_alone(tmp_path):
    """A time of 0, a damaged line, a device that nobody says."""
    good = json.loads((DATA / "llama_bench.json").read_text())
    tests = [good[0], good[0] | {"avg_ns": 0}, good[1] | {"gpu_info": "", "cpu_info": ""}, 7]
    found = learn([written(tmp_path, tests)])
    assert [run.phase for run in found.profile.runs] == ["prompt"]
    assert list(found.refused) == [f"runs.json, result {place}" for place in (2, 3, 4)]
    assert "avg_ns" in found.refused["runs.json, result 2"]
    assert "--device" in found.refused["runs.json, result 3"]
    lines = tmp_path / "runs.jsonl"
    lines.write_text("\n".join([json.dumps(good[0]), '{"avg_ns": ', json.dumps(good[1])]))
    found = learn([lines])
    assert (len(found.profile.runs), list(found.refused)) == (2, ["runs.jsonl, line 2"])
    rows = (
        "resnet-50,t4,8,latency_ms,9",
        "resnet-50,t4,8,latency_ms,0",
        "resnet-50,t4,x,latency_ms,9",
    )
    found = learn([table(tmp_path, *rows)])
    assert len(found.profile.runs) == 1
    assert "latency_ms" in found.refused["runs.csv, line 3"]
    assert "batch" in found.refused["runs.csv, line 4"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("runs.yaml", "version: 0.2\n  results: ["),
        ("runs.yaml", "scenario: 3"),
        ("runs.csv", ""),
        ("runs.csv", "model,device\nresnet-50,t4"),
        ("runs.csv", "model,device,latency_s,latency_s\nresnet-50,t4,1,2"),
        ("runs.csv", "\x00\xff"),
        ("runs.csv", "step,iteration_s\n1,\n"),
        ("runs.txt", "resnet-50"),
    ],
)
def test_what_is_no_file_of_runs_is_refused(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(AccelsimError):
        learn([path], H100)


def test_users_of_a_report_are_those_of_each_replica(tmp_path):
    load = "scenario.load.standardized"
    change = [(f"{load}.rate_qps", None), (f"{load}.concurrency", 16)]
    many, few = (
        learn([written(tmp_path, report([*change, (f"{STANDARD}.replicas", count)]))]).rows()
        for count in (2, 1)
    )
    assert [row["predicted_s"] for row in many] < [row["predicted_s"] for row in few]


def test_what_a_file_does_not_say_is_asked_for_by_option(tmp_path):
    path = tmp_path / "bench.json"
    path.write_text(json.dumps({k: v for k, v in sample().items() if k != "device"}))
    with pytest.raises(InvalidValueError, match="--device"):
        learn([path])
    assert learn([path], H100).rows()[0]["device"] == "h100-sxm-80gb"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "version"),
        ({"format": "something"}, "format"),
        ({"runs": []}, "runs"),
        ({"more": 1}, "more"),
    ],
)
def test_a_profile_of_another_schema_is_refused(tmp_path, mine, change, message):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(json.loads(mine.read_text()) | change))
    with pytest.raises(ProfileError, match=message):
        estimate("resnet-50", "t4", learned=path)


def test_many_runs_at_once_are_corrected_as_each_alone(tmp_path):
    slow = [f"resnet-50,t4,{batch},latency_ms,{1e3 * 1.3 * t}" for batch, t in times("resnet-50")]
    mine = profile_of(tmp_path, learn([table(tmp_path, *slow)]))
    batches = [1, 8, 64]
    many = estimate_many("resnet-50", "t4", shapes={"batch": batches}, learned=mine)
    plain = estimate_many("resnet-50", "t4", shapes={"batch": batches})
    for place, batch in enumerate(batches):
        alone = estimate("resnet-50", "t4", batch=batch, learned=mine)
        for name in ("latency_s", "latency_low_s", "latency_high_s", "energy_j"):
            assert many[name][place] == pytest.approx(getattr(alone, name), rel=1e-9)
        assert many["latency_s"][place] > 1.1 * plain["latency_s"][place]


def test_a_profile_that_is_not_there_is_asked_for():
    with pytest.raises(InvalidValueError, match="accelsim learn"):
        estimate("resnet-50", "t4", learned="nowhere.json")


PLANS = ("tp=1", "tp=2", "tp=4")
TRAINED = {"device": "h100-sxm-80gb", "gpus": 8, "global_batch": 64, "stack": "megatron"}


def iteration_s(plan, **more):
    found = train("llama-3.2-1b", plan=plan, seq_len=512, **TRAINED, **more)
    return found.iteration_s


def test_training_on_devices_is_corrected_by_plans_like_those_measured(tmp_path):
    header = "model,device,stack,gpus,plan,batch,seq_len,metric,value"
    where = "llama-3.2-1b,h100-sxm-80gb,megatron,8"
    plain = {plan: iteration_s(plan) for plan in PLANS}
    rows = [
        f"{where},tp=2,64,512,iteration_s,{1.3 * plain['tp=2']!r}",
        f'{where},"tp=2,pp=2",64,512,tokens_per_s,{64 * 512 / (1.3 * iteration_s("tp=2,pp=2"))!r}',
    ]
    mine = profile_of(tmp_path, learn([table(tmp_path, *rows, header=header)]))
    ratio = {plan: iteration_s(plan, learned=mine) / plain[plan] for plan in PLANS}
    assert ratio["tp=2"] == pytest.approx(1.2, abs=0.1)
    assert 1.0 < ratio["tp=4"] < ratio["tp=2"]
    before, after = (
        train("llama-3.2-1b", plan="tp=2", seq_len=512, **TRAINED, learned=one)
        for one in (None, mine)
    )
    assert (
        after.iteration_high_s / after.iteration_low_s
        < before.iteration_high_s / before.iteration_low_s
    )
    assert sum(after.time_s.values()) == pytest.approx(after.iteration_s)
    found = train("llama-3.2-1b", search=True, seq_len=512, **TRAINED, learned=mine)
    assert all(row["iteration_s"] > 0 for row in found.plans)


def test_a_log_of_training_is_one_run(tmp_path):
    path = tmp_path / "log.csv"
    steps = [(1, 9.0, 11.0), *((step, 5.0 / step, 2.0) for step in range(2, 30))]
    path.write_text(
        "step,loss,iteration_s\n" + "\n".join(f"{a},{b},{c}" for a, b, c in steps) + "\n30,0.2,\n"
    )
    where = {"device": "h100-sxm-80gb", "engine": "megatron", "gpus": 8}
    told = Told(model="llama-3.2-1b", batch=64, seq_len=512, **where)
    (run,) = learn([path], told).rows()
    assert (run["measured_s"], run["phase"]) == (2.0, "training")
    with pytest.raises(InvalidValueError, match="--device"):
        learn([path], Told(model="llama-3.2-1b"))


def test_tokens_per_second_of_a_device_are_read(tmp_path):
    header = "model,device,stack,gpus,batch,seq_len,tokens_per_s_per_device"
    row = "llama-3.2-1b,h100-sxm-80gb,megatron,8,64,512,2048"
    (run,) = learn([table(tmp_path, row, header=header)]).rows()
    assert run["measured_s"] == pytest.approx(2.0)


def test_the_commands_show_figures_before_and_after(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "120")
    out = tmp_path / "mine.json"
    assert accelsim("learn", SAMPLE, "--out", str(out)) == 0
    capsys.readouterr()
    asked = ("estimate", "llama-3.1-8b", "-d", "h100-sxm-80gb", "--learned", str(out))
    assert accelsim(*asked) == 0
    assert "with your runs" in capsys.readouterr().out
    assert accelsim(*asked, "--format", "json") == 0
    rows = json.loads(capsys.readouterr().out)["learned"]
    assert {"figure", "without_value", "with_value"} <= set(rows[0])
    more = tmp_path / "more.json"
    rows = table(tmp_path, "resnet-50,t4,8,latency_ms,9")
    assert accelsim("learn", str(rows), "--add-to", str(out), "--out", str(more)) == 0
    assert len(read_learned(more).runs) == len(read_learned(out).runs) + 1


def accelsim(*words):
    try:
        main(words)
    except SystemExit as done:
        return int(done.code or 0)
    return 0

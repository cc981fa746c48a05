"""What is fuzzed through the command line: calls, plans and sweeps, each drawn at random."""

from __future__ import annotations

import contextlib
import io
import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from accelsim.cli.entry import main
from accelsim.errors import InputError
from accelsim.exploration.sweeps.spec import load_sweep

from .inputs import Kind, file_of

#: Requests and points that a call may have: more is longer, and no other code.
_MOST_REQUESTS, _MOST_POINTS = 200, 40


def command(*words: object) -> None:
    """Run the program; a refusal of the parser is an error like any other.

    Raises:
        AccelsimError: If the command line is refused.
        RuntimeError: If the program ends with a code that says neither.
    """
    told = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(told):
        try:
            main([str(word) for word in words])
        except SystemExit as ended:
            if ended.code == 2:
                raise InputError(told.getvalue()) from None
            if ended.code != 0:
                raise RuntimeError(f"exit {ended.code}: {told.getvalue()}") from None


def _document(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def document_of(text: str) -> Any:
    """What a text says; itself where it is no JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return text


_SIZES = (1, 2, 4, 8, 16, 64, 1000)
_COUNTS = (1, 2, 4)
#: Values that no option has, or few.
_EDGES = (0, -1, 1e-9, 1e300, 10**6, 10**9, 10**15, "nan", "x", "", "0s", "1us", "=1", "\u202e")
_RUN: Mapping[str, Sequence[Any]] = {
    "--precision": ("fp16", "bf16", "fp8", "int8", "nvfp4", "q4_k_m"),
    "--execution": ("eager", "graph", "compiled"),
    "--stack": ("vllm", "tensorrt", "llama-cpp"),
    "--host": ("epyc-7763",),
    "--usd-per-hour": (1e-9, 3.0, 1e4),
    "--provider": ("aws", "*", "none"),
    "--region": ("us-*", "eu-*"),
    "--kind": ("spot", "on-demand", "committed-1y"),
    "--discounts": ("aws=10%", "aws=100%"),
    "--tier": ("spec", "fitted", "best"),
    "--format": ("json", "csv", "table", "md", "html"),
    "--report": ("page.html",),
    "--out": ("out.json", "out.csv", "out.md", "out.html"),
}
_RATES = (1e-3, 0.5, 5.0, 100.0, 1e5)
_TIMES = ("1ms", "50ms", "1s", "20s", "1h", "500h")
_LENGTHS = ("1", "64", "uniform:1-900", "lognormal:200:0.8", "exponential:50", "geometric:9")
_LIMITED = {"--slo-ttft": "1s", "--slo-tpot": "50ms"}
_APART = {"--prefill-device": "l4", "--prefill-replicas": 2}
_SERVE = {
    "--kv": ("fp8", "int8"),
    "--weight-format": ("int8", "mxfp4"),
    "--duration": (0.1, 1, 20),
    "--process": ("poisson", "gamma", "uniform", "diurnal", "burst"),
    "--cv": (0.1, 2, 30),
    "--prompt": _LENGTHS,
    "--output": (*_LENGTHS, "0"),
    "--turns": (1, 2, 5),
    "--session": ("steps=3", "steps=2,gap=1s,agents=2,agent_steps=2,tool=uniform:1-9"),
    "--prefix-tokens": _SIZES,
    "--expert-skew": ({"--expert-skew": 1, "--tp": 2, "--ep": 2}, 0),
    "--seed": _SIZES,
    "--engine": ("vllm", "sglang", "tensorrt-llm", {"--engine": "static", "--batch-window": "5ms"}),
    "--replicas": _COUNTS,
    "--tp": _COUNTS,
    "--pp": _COUNTS,
    "--ep": _COUNTS,
    "--dp": _COUNTS,
    "--cluster": ("dgx-superpod-h100", "gb200-nvl72"),
    "--max-batch-tokens": _SIZES,
    "--max-seqs": _SIZES,
    "--gpu-memory-utilization": (0.5, 0.95, 1),
    "--router": ("round-robin", "random", "least-outstanding", "least-kv", "prefix-aware"),
    "--slo-e2e": _TIMES,
    "--prefill-device": (_APART, {**_APART, "--prefill-tp": 2, "--kv-link": "infiniband-ndr"}),
    "--pool": ("device=l4,replicas=2", "device=l4,engine=static", "device=t4,tp=2"),
    "--class": ("name=a", "name=a,share=0.3,ttft=1s,priority=1", "name=a,share=0.5,e2e=10s"),
    "--autoscale": ("utilisation:0.7", "queue:8:1-4", {"--autoscale": "queue:1", "--turns": 3}),
    "--provisioning": tuple(
        {"--autoscale": "queue:2:1-3", "--provisioning": time} for time in _TIMES
    ),
    "--storage": ("nvme", "network", "object", "memory"),
    "--failures": _TIMES,
    "--spot": ("6h", "10s:1s", "1h:30s"),
    "--max-outstanding": _SIZES,
    "--preemption": ({"--preemption": "swap", "--host-cache": "64GB"}, "recompute"),
    "--host-cache": ("1GB", "64GB"),
    "--speculate": ("4:0.8:llama-3.2-1b", "1:1:llama-3.2-1b"),
    "--adapters": ("8:32", "1:1"),
    "--find": tuple(
        {"--find": what, **_LIMITED} for what in ("max-rate", "min-replicas", "cheapest", "limits")
    ),
    "--requests-out": ("requests.csv", "requests.parquet"),
    "--trace": ("trace.json",),
}
_LONG = {"--tokens": 1e12}
_TRAIN = {
    "--gpus": _SIZES,
    "--plan": ("dp=2", "tp=2,pp=2", "dp=4,zero=3", "cp=2,sp=1", "ep=8,etp=2", "pp=4,chunks=2"),
    "--search": ({"--search": True, "--gpus": 8}, {"--search": True, "--plan": "tp=2"}),
    "--global-batch": _SIZES,
    "--microbatch": _COUNTS,
    "--recompute": ("none", "selective", "full"),
    "--schedule": tuple(
        {"--schedule": name, "--plan": "pp=4,dp=1", "--global-batch": 64}
        for name in ("gpipe", "1f1b", "interleaved", "zb-h1", "zb-v", "dualpipe")
    ),
    "--tokens": (1, 1e9, 1e15),
    "--samples": (1, 1e9),
    "--epochs": ({"--epochs": 3, "--epoch-samples": 1e6},),
    "--mtbf": ({**_LONG, "--mtbf": 1e5}, {**_LONG, "--mtbf": 1e-6, "--checkpoint": 60}),
    "--checkpoint": ({**_LONG, "--checkpoint": 1e-3}, {**_LONG, "--checkpoint": 1e9}),
    "--conditions": ("pue=1.2", "network_share=0.5", "straggler_fraction=0.1", "pue=1,pue=2"),
    "--deadline": ({**_LONG, "--deadline": 1}, {**_LONG, "--deadline": 1e6}),
    "--budget": ({**_LONG, "--budget": 1}, {**_LONG, "--budget": 1e9}),
    "--optimizer": ("sgd", "adam", "lamb"),
    "--lora-rank": _SIZES,
    "--seq-len": _SIZES,
    "--trace": ("trace.json",),
}


def _drawn(
    fixed: Mapping[str, Sequence[Any]], table: Mapping[str, Sequence[Any]], draw: random.Random
) -> dict[str, Any]:
    """Words that stand, and up to five others; some come together, some at their edges."""
    found: dict[str, Any] = {}
    for name in [*fixed, *draw.sample(sorted(table), draw.randint(0, 5))]:
        value = draw.choice({**table, **fixed}[name])
        found |= value if isinstance(value, dict) and name[:1] == "-" else {name: value}
        if name[:1] == "-" and draw.random() < 0.05:
            found[name] = draw.choice(_EDGES)
    return found


def _words(text: str) -> list[Any]:
    fields = document_of(text)
    if not isinstance(fields, Mapping):
        return [text]
    words = []
    for name, value in fields.items():
        for one in value if isinstance(value, list) else [value]:
            words += [name] * (name[:1] == "-") + [one] * (one is not True)
    return words


def _train(folder: Path, text: str) -> None:
    command("train", *_words(text))


def _serve(folder: Path, text: str) -> None:
    fields = document_of(text)
    if isinstance(fields, Mapping):  # of few requests
        rate, seconds = (fields.get(name, 1) for name in ("--rate", "--duration"))
        is_few = isinstance(rate, int | float) and seconds in (0.1, 1, 20) and rate * seconds < 200
        limit = {} if "--duration" in fields and is_few else {"--requests": _MOST_REQUESTS}
        text = json.dumps({**fields, **limit})
    command("serve", *_words(text))


_SERVICE = {"name": "s", "model": "resnet-50", "requests_per_s": 200, "latency_p99_ms": 100}
_TALK = {"name": "t", "model": "llama-3.2-1b", "requests_per_s": 2, "ttft_p99_ms": 900}
_TALK |= {"prompt": "lognormal:200:0.8", "output": "32", "tp": 1, "engine": "vllm"}
_JOB = {"name": "j", "model": "bert-base", "samples": 1e6, "global_batch": 64}
_JOB |= {"deadline_hours": 48, "runs_per_month": 4, "run": {"precision": "bf16"}}
_ARCHIVE = {"name": "a", "model": "resnet-50", "samples": 1e8, "deadline_hours": 24}
_OWNED = {"name": "n", "device": "l4", "device_count": 2, "used_fraction": 0.8, "life_years": 4}
_OWNED |= {"price_usd": 5e3, "busy_power_kw": 0.2, "electricity_usd_per_kwh": 0.1, "pue_ratio": 1.3}
_SCENARIO: Mapping[str, Sequence[Any]] = {
    "objective": ("cost", "energy", "carbon", "latency", "time"),
    "months": (1, 12),
    "services": ([_SERVICE], [_SERVICE], [_TALK], [_SERVICE, _TALK], []),
    "training_jobs": ([_JOB], []),
    "batch_jobs": ([_ARCHIVE], []),
    "reliability": (
        {"instance_mtbf_hours": 5000, "repair_hours": 1},
        {"instance_mtbf_hours": 0.1, "spot_mtbf_hours": 20, "restart_s": 600},
    ),
    "constraints": (
        {"redundancy": 5, "slo_probability": 0.9},
        {"budget_usd_per_month": 5e3, "carbon_kgco2e_per_month": 500, "power_w": 3e3},
        {"instance_count": 20, "quota": {"gcp": 4, "l4": 2}, "residency": ["eu-*"]},
    ),
}
_CANDIDATES = {"devices": ["t4", "l4"], "providers": ["aws", "gcp"], "regions": ["us-*"]}
SCENARIO = {"name": "p", "services": [_SERVICE], "candidates": _CANDIDATES}
_PLACES = (_CANDIDATES, {"devices": ["l4"], "kinds": ["spot"]}, {"devices": ["t4"]})
_PLACES += ({"devices": ["l4"], "owned": [_OWNED], "counts": [1, 2]},)
SPEC = {"name": "s", "method": "grid", "fixed": {"model": "lenet-5"}}
SPEC |= {"vary": {"device": ["t4", "l4"], "precision": ["fp16", "fp32"], "batch": [1, 2, 4]}}
_SWEPT = (
    {"of": "estimate", "fixed": {"model": "lenet-5"}},
    {"of": "train", "fixed": {"model": "gpt2", "cluster": "dgx-h100"}},
    {"of": "serve", "fixed": {"model": "llama-3.2-1b", "requests": 5, "rate_per_s": 1.0}},
    {"of": "plan", "fixed": {"scenario": "none.yaml"}},
)
_VARIED: Mapping[str, Sequence[Any]] = {
    "device": (["t4", "l4"], ["tpu", "epyc-7763"]),
    "batch": ([1, 2, 64], {"low": 1, "high": 9}),
    "precision": (["fp16", "int8", "none"],),
    "tp": ([1, 2],),
    "replicas": ([1, 2, 0],),
    "prompt": (["64", "uniform:1-9", "x"],),
}


def _plan_document(draw: random.Random) -> dict[str, Any]:
    found = _drawn({"candidates": _PLACES}, _SCENARIO, draw) | {"name": "p"}
    return found if found.keys() & {"services", "batch_jobs"} else {**found, "services": [_SERVICE]}


def _plan(folder: Path, text: str) -> None:
    command("plan", file_of(folder, "s.yaml", text), "--report", "page.html")


def _sweep_document(draw: random.Random) -> dict[str, Any]:
    names = draw.sample(sorted(_VARIED), 2)
    vary = {name: draw.choice(_VARIED[name]) for name in names}
    method = draw.choice(["grid", "random", "sobol", "latin-hypercube"])
    drawn = {} if method == "grid" else {"points": 5, "seed": 1}
    return {"name": "s", "method": method, "vary": vary, **drawn, **draw.choice(_SWEPT)}


def _sweep(folder: Path, text: str) -> None:
    path = file_of(folder, "s.yaml", text)
    spec = load_sweep(path)
    most = 4 if spec.of == "plan" else _MOST_POINTS
    if spec.count <= most and not any(name == "requests" for name in spec.vary):
        for _ in range(2):  # begun, and gone on with
            command("sweep", path, "--out", "points", "--workers", "1", "--quiet")
        command("report", "points", "--out", "page.html")


_TRAINED = {"model": ("gpt2", "llama-3.2-1b", "resnet-50", "dlrm", "mixtral-8x7b")}
_ON = (
    {"--device": ("h100-sxm-80gb", "t4", "epyc-7763", "tpu-v4")},
    {"--cluster": ("dgx-h100", "dgx-superpod-b300", "tpu-v4-pod", "t4-ethernet-16")},
)
_LOADS = ({"--rate": _RATES}, {"--rate": _RATES}, {"--users": _SIZES})
_SERVED = {"model": ("llama-3.2-1b", "llama-3.1-8b", "resnet-50"), "-d": ("l4", "h100-sxm-80gb")}

#: Kinds by name.
CALLS: Mapping[str, Kind] = {
    "train": Kind(
        {"model": "gpt2", "--cluster": "dgx-h100"},
        json.dumps,
        _train,
        lambda draw: _drawn(_TRAINED | draw.choice(_ON), _RUN | _TRAIN, draw),
    ),
    "serve": Kind(
        {"model": "llama-3.2-1b", "-d": "l4", "--rate": 2},
        json.dumps,
        _serve,
        lambda draw: _drawn(_SERVED | draw.choice(_LOADS), _RUN | _SERVE, draw),
    ),
    "plan run": Kind(
        SCENARIO,
        yaml.safe_dump,
        _plan,
        _plan_document,
    ),
    "sweep run": Kind(SPEC, yaml.safe_dump, _sweep, _sweep_document),
}

"""Suite `fleet`: published facts of many devices: training, serving, energy, cost, what fits.

Each row says which call of the library answers it and with which options; models that the catalogue
lacks stand in `fleet_models.json` beside the table. Rows of confidence "low" (another device or
plan than was measured) are groups of their own. Whether a run fits is right or wrong: a row is
measured as 1, and predicted as 1 where the answer is right, else as 2. A training run that does not
fit is answered, and its memory may be asked.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any

import numpy as np

from accelsim import (
    Arrivals,
    Conditions,
    RunLength,
    Shard,
    estimate,
    serve,
    simulate,
    train,
)
from accelsim.catalog import device_names
from accelsim.catalog.clusters import cluster
from accelsim.catalog.stacks import stack, stack_names
from accelsim.catalog.workload_spec import parse_workload
from accelsim.catalog.workloads import workload
from accelsim.confidence.quantiles import Z90
from accelsim.errors import DoesNotFitError, InputError, InvalidValueError, UnknownNameError
from accelsim.files.datafile import read_json
from accelsim.plain import Document, Values
from accelsim.result import Metric
from accelsim.scoreboard.data_folder import DataFolder, schema
from accelsim.scoreboard.measured_runs import MeasuredRun, run_batches
from accelsim.scoreboard.scored_rows import ScoredRows
from accelsim.scoreboard.suite import MeasuredBatch, register_suite
from accelsim.workloads.model import Workload
from tools.scoreboard.published import by_name
from tools.scoreboard.quantity_batches import QUANTITY

FLEET_SCHEMA = schema("published/fleet.csv")
_MODELS = "fleet_models.json"
_FITS = "fits"
#: Lengths of a language model where rows name none, as the catalogue's have.
_DEFAULT, _OUTPUT_LEN = {"batch": 1, "seq_len": 512}, 128
#: Unit of a metric of the table, the figure of a result that it is, and what that is multiplied by.
_METRICS: Mapping[str, tuple[str, str, float]] = {
    "tok_s_dev": ("tokens/s/device", "tokens_per_s per device", 1.0),
    "iter_s": ("s", "iteration_s", 1.0),
    "tflops": ("TFLOP/s/device", "model_flop_per_s_per_device", 1e-12),
    "hours": ("h", "time_to_train_s", 1 / 3600),
    "gpu_hours": ("device-hours", "time_to_train_s times devices", 1 / 3600),
    "mem_gb": ("GB", "memory_bytes", 1e-9),
    "mem_gib": ("GiB", "memory_bytes", 2.0**-30),
    "samples_s": ("samples/s", "samples_per_s", 1.0),
    "usd": ("USD", "total_cost_usd", 1.0),
    "energy_mwh": ("MWh", "total_energy_j", 1 / 3.6e9),
    "out_tok_s": ("tokens/s", "output_tokens_per_s", 1.0),
    "itl_ms": ("ms", "itl_s.mean", 1e3),
    "ttft_ms": ("ms", "ttft_s.mean", 1e3),
    "batch_over_itl": ("tokens/s", "users per itl_s.p50", 1.0),
    "dec_tok_s": ("tokens/s", "tokens per s of decoding", 1.0),
    "kv_kb_token": ("kB/token", "kv_cache_bytes per token", 1e-3),
    _FITS: ("1/0", _FITS, 1.0),
}
_SCALED: Mapping[str, tuple[str, Callable[[Any, Values], float]]] = {
    "tokens_per_s per device": ("tokens_per_s", lambda found, _: 1.0 / found.device_count),
    "time_to_train_s times devices": ("time_to_train_s", lambda found, _: found.device_count),
}


def by_kind(rows: Sequence[ScoredRows]) -> Document:
    """Accuracy by kind, over all devices."""
    return by_name(rows, np.concatenate([part.group for part in rows]))


@register_suite(
    "fleet",
    "published facts of fleets: training, serving, energy, cost, memory",
    (FLEET_SCHEMA,),
    "operator",
    findings=by_kind,
    quantity=QUANTITY,
    has_best_alone=True,
)
def load(folder: DataFolder) -> list[MeasuredBatch]:
    """Each row, answered by the call it names."""
    path = folder.root / "published" / _MODELS
    models = read_json(path) if path.is_file() else {}
    return run_batches(_row(cells, models) for cells in folder.records(FLEET_SCHEMA))


def _row(cells: Values, models: Values) -> MeasuredRun:
    is_low = cells["confidence"] == "low"
    group = f"{cells['kind']}{' (low confidence)' if is_low else ''}"
    measured = 1.0 if cells["metric"] == _FITS else cells["value"]
    row = MeasuredRun(cells["device"], group, f"{cells['id']} {cells['metric']}", measured)
    return row.answered(partial(_answered, cells=cells, models=models))


def _answered(row: MeasuredRun, cells: Values, models: Values) -> MeasuredRun:
    unit, figure, scale = _METRICS.get(cells["metric"], ("", "", 1.0))
    if not figure or unit != cells["unit"]:
        given, known = f"{cells['metric']} in {cells['unit']}", ", ".join(_METRICS)
        raise InvalidValueError("metric", given, f"one of {known}, in its unit")
    asked = _on_trainer(_options(cells["options"]), cells)
    if figure == _FITS:
        fits = _fits(cells, asked, models)
        predicted = 1.0 if fits == bool(cells["value"]) else 2.0
        return replace(row, predicted_s=predicted, profile=_board(asked))
    answer = _called(cells["call"], _workload(cells["model"], models), asked)
    metric = _figure(answer, figure, asked)
    if metric.value is None:
        raise InvalidValueError("metric", cells["metric"], "a figure that the result has")
    low, high = metric.low, metric.high
    sigma = math.log(high / low) / (2 * Z90) if low and high else math.nan
    value = metric.value * scale
    return replace(row, predicted_s=value, log_sigma=sigma, profile=_board(asked))


def _options(text: str) -> Document:
    """The options of a row.

    Raises:
        InvalidValueError: If they are no JSON mapping.
    """
    try:
        options = json.loads(text)
    except ValueError:
        options = None
    if not isinstance(options, dict):
        raise InvalidValueError("options", text[:40], "a JSON mapping")
    return options


def _on_trainer(asked: Document, cells: Values) -> Document:
    """The options on the software of a row that trains, where it is a stack of the catalogue: its
    version of the year that the row's source names, else the default. It runs as it does by default
    where it has not the way that the row names.
    """
    name = cells["engine"]
    if cells["call"] != "train" or name not in stack_names():
        return asked
    own = stack(name)
    if "training" not in own.modes:
        return asked
    kept = {key: value for key, value in asked.items() if key != "execution" or value in own.paths}
    years = re.findall(r"20\d\d", cells["source"])
    dated = next(
        (year for year in years if any(version.holds(year) for version in own.versions)), None
    )
    return kept | {"stack": name if dated is None else f"{name}@{dated}"}


def _workload(name: str, models: Values) -> Workload:
    """A model of the catalogue, or of those beside the table."""
    try:
        return workload(name)
    except UnknownNameError:
        if name not in models:
            raise
        usual = {"title": name, "task": "text-generation", "output_len": _OUTPUT_LEN}
        return parse_workload({"name": name, **usual, "default": _DEFAULT, **models[name]})


def _board(asked: Values) -> str:
    name = asked.get("device", asked.get("cluster"))
    return str(name) if name in device_names() else str(cluster(str(name)).device_name)


def _called(call: str, model: Workload, asked: Values) -> Any:
    """The result of a call with a row's options.

    Raises:
        InputError: If the call or an option is unknown, or the library refuses it.
    """
    ask = _CALLS.get(call)
    if ask is None:
        raise UnknownNameError("call", call, sorted(_CALLS))
    try:
        return ask(model, **asked)
    except TypeError as error:
        if "argument" not in str(error):
            raise
        raise InputError(f"options of {call}: {error}") from None


def _train(model: Workload, **asked: Any) -> Any:
    for name, kind in (("length", RunLength), ("conditions", Conditions)):
        if name in asked:
            asked[name] = kind(**asked[name])
    if asked.get("cluster") in device_names():  # one device is no cluster
        asked["device"] = asked.pop("cluster")
    return train(model, check_memory=False, **asked)


def _serve(
    model: Workload, *, device: str, load: Document, run: Document, serving: Document
) -> Any:
    return serve(model, device, Arrivals(**load), **run, **serving)


def _simulate(model: Workload, *, device: str, **asked: Any) -> Any:
    ranks = {field.name: asked.pop(field.name) for field in fields(Shard) if field.name in asked}
    return simulate(model, device, shard=Shard(**ranks), **asked)


def _estimate(model: Workload, *, device: str, **asked: Any) -> Any:
    return estimate(model, device, **asked)


_CALLS: Mapping[str, Callable[..., Any]] = {
    "train": _train,
    "serve": _serve,
    "simulate": _simulate,
    "estimate": _estimate,
}


def _fits(cells: Values, asked: Values, models: Values) -> bool:
    try:
        answer = _called(cells["call"], _workload(cells["model"], models), asked)
    except DoesNotFitError:
        return False
    return bool(getattr(answer, "fits", True))


def _figure(found: Any, figure: str, asked: Values) -> Metric:
    """A figure of a result, with its interval where it has one."""
    if figure == "users per itl_s.p50":
        return _inverse(found.metrics["itl_s.p50"], asked["load"]["users"])
    if figure == "tokens per s of decoding":
        passes = [one for one in found.figures()["passes"] if one["name"] == "decode"]
        seconds = sum(one["repeat_count"] * one["latency_s"] for one in passes)
        per_token = seconds / sum(one["repeat_count"] for one in passes)
        spread = found.spread_ratio
        return _inverse(Metric(per_token, per_token / spread, per_token * spread), 1)
    if figure == "kv_cache_bytes per token":
        tokens = asked["batch"] * (asked["seq_len"] + asked["output_len"])
        return Metric(found.memory["kv_cache_bytes"] / tokens)
    name, ratio = _SCALED.get(figure, (figure, lambda _found, _asked: 1.0))
    metric, by = found.metrics.get(name), ratio(found, asked)
    if metric is None:
        return Metric(getattr(found, name, None))
    ends = (None if end is None else end * by for end in (metric.value, metric.low, metric.high))
    return Metric(*ends)


def _inverse(metric: Metric, by: float) -> Metric:
    """How many of something there are per second, of the seconds of one."""
    value, low, high = (end and by / end for end in (metric.value, metric.low, metric.high))
    return Metric(value, high, low)

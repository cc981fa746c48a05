"""Suites `serving-tpot`, `serving-ttft`, `serving-ttft-mean`: language models served on H200 and
B200 nodes by vLLM, SGLang and TensorRT-LLM, dense and mixtures of experts, prefill and decoding
together and apart.

The tables (aiconfigurator-core's end-to-end file) are used to score and never to fit, but for the
two ratios of a host's time to issue prompts (`PromptIssue`), which rows of few users show. They
state model, format, ranks, lengths and requests in flight. What they do not state is as the public
InferenceMAX harness does it (SemiAnalysisAI/InferenceX, utils/bench_serving/benchmark_serving.py):
after 2 C requests that warm the server up, a closed loop of C users who come all at once, 10 C
requests, lengths uniform between 0.8 and 1 of those stated, no end-of-sequence, no prefix cache, at
most C sequences and 8,192 tokens a step. Times to the first token are compared as means over the
loop, its first burst included, as the measured ones rise with C by a twentieth of a prompt's time
per user whatever the length of the answers; and as medians in a suite beside it. Where the harness
starts a server otherwise (FP8 cache, tokens of a step, share of memory, polling, held prompts),
`serving_systems` says so. Formats of 4 bits are of weights alone on an H200, which has no such
arithmetic.

Models go by the name of their repository without organisation, format and date. Ranks are read as
`serving_ranks` says. Rows that state no numbers of prefill and decode replicas do not say which
system was measured: they are answered by the geometric middle of the fewest and the most replicas
there may be, with an interval that holds them all.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product

import numpy as np

from accelsim.catalog.checkpoints.quantization import published_precision
from accelsim.catalog.engines import ServingEngine
from accelsim.catalog.workloads import workload_names
from accelsim.confidence.quantiles import Z90
from accelsim.dtype import Precision
from accelsim.dtype import precision as find_precision
from accelsim.errors import InvalidValueError, UnknownNameError
from accelsim.frozen import frozen
from accelsim.plain import Document, Values
from accelsim.scoreboard.data_folder import DataFolder, published, schema
from accelsim.scoreboard.measured_runs import MeasuredRun, run_batches
from accelsim.scoreboard.names import device_of, note_unknown_devices, workload_of
from accelsim.scoreboard.suite import MeasuredBatch, register_suite
from accelsim.workloads.model import Workload
from accelsim.workloads.options import ModelOptions
from tools.scoreboard.served_systems import (
    REQUESTS_PER_USER,
    Load,
    Served,
    TokenTimes,
    as_published,
    closed_loop,
    like_figure,
    split,
)
from tools.scoreboard.serving_findings import findings, label_of
from tools.scoreboard.serving_ranks import COUNTS, Usual, ranks_of, usual_reading

TOKENS_SCHEMA = schema("serving/measured_ttft_tpot_h200.csv")
_SCHEMAS = (TOKENS_SCHEMA, replace(TOKENS_SCHEMA, file="serving/measured_ttft_tpot_b200.csv"))
_FACTS: Values = published("serving_systems")
_USERS = re.compile(r"silicon_concurrency=(\d+)")
#: Ends of names of checkpoints of one architecture: tuning, date, format.
_VARIANT = re.compile(
    r"-(?:instruct|thinking|chat|it|hf|base|dynamic|block|\d{4}|(?:nv|mx)?fp[48]|bf16|awq|gptq"
    r"|int[48]|w\d+a\d+|v\d)\Z"
)
_LEAST_SHARE = 0.8
_BATCH_TOKENS = 8192
#: Figures whose residuals are the spread of others like them; medians have the means'.
_LIKE = frozenset({"ttft_mean_s", "tpot_s"})
#: Share of the cache up to which a system's first tokens say something of prompts: beyond it they
#: wait for room.
_MOST_FILLED = 0.8


def _suite(
    name: str, title: str, quantity: str, column: str, figure: str
) -> Callable[[DataFolder], Sequence[MeasuredBatch]]:
    """A suite of one figure of the loops."""

    @register_suite(
        name,
        title,
        (),
        "model",
        optional_files=_SCHEMAS,
        quantity=quantity,
        has_best_alone=True,
        findings=findings,
    )
    def load(folder: DataFolder) -> list[MeasuredBatch]:
        tables = [table for each in _SCHEMAS if (table := folder.table(each)) is not None]
        for table in tables:
            note_unknown_devices(folder, table, "system")
        records = [cells for table in tables for cells in table.records()]
        reading = usual_reading(records)
        return run_batches(_row(cells, cells[column] * 1e-3, figure, reading) for cells in records)

    return load


_FIRST = "time to the first token"
_LOOPS = "language models served on H200 and B200 nodes"
_TOKEN = "time per output token"  # noqa: S105  (no secret)
load_tpot = _suite(
    "serving-tpot", f"{_LOOPS}: {_TOKEN}", f"{_TOKEN}, s", "silicon_tpot_ms", "tpot_s"
)
load_ttft = _suite(
    "serving-ttft", f"{_LOOPS}: {_FIRST}", f"{_FIRST}, s", "silicon_ttft_ms", "ttft_s"
)
load_ttft_mean = _suite(
    "serving-ttft-mean",
    "the same, as the mean over all requests of the loop",
    f"{_FIRST}, s",
    "silicon_ttft_ms",
    "ttft_mean_s",
)


def _row(cells: Values, measured_s: float, figure: str, usual: Usual) -> MeasuredRun:
    model, backend, mode = (cells[name] for name in ("model_path", "backend", "mode"))
    users = _users(cells)
    label = _label(cells, users)
    row = MeasuredRun(cells["system"], f"{model} ({backend}, {mode})", label, measured_s)
    if not np.isfinite(measured_s) or not users:
        return row.refused("no such time, or no requests in flight, in the row")

    def answered(row: MeasuredRun) -> MeasuredRun:
        system = _System(cells, users, usual)
        times = system.times()
        middle_s, log_sigma = spanned(times, figure)
        predicted = replace(row, predicted_s=middle_s, log_sigma=log_sigma)
        like_it = system.like(predicted, figure.partition("_")[0])
        is_full = figure != "tpot_s" and max(each.filled for each in times) > _MOST_FILLED
        return replace(like_it, setting="") if is_full or figure not in _LIKE else like_it

    return row.answered(answered)


def _users(cells: Values) -> int:
    """Requests in flight: of the system, where the source says them."""
    match = _USERS.search(cells["silicon_data_source"])
    if match:
        return int(match.group(1))
    return int(np.nan_to_num(cells["batch_size"]))


@frozen
class _System:
    """One row's system."""

    cells: Values
    users: int
    usual: Usual

    def times(self) -> list[TokenTimes]:
        """Predicted times, of each system that the row may be.

        Raises:
            InputError: If the model is unknown or does not run; its subclasses say which.
        """
        load = self._load()
        if self.cells["mode"] == "agg":
            return [closed_loop(self._served(""), load)]
        prefill, decode = self._served("prefill_"), self._served("decode_")
        counts = self._replicas("prefill", prefill), self._replicas("decode", decode)
        return [split(prefill, one, decode, other, load) for one, other in product(*counts)]

    def _replicas(self, part: str, served: Served) -> set[int]:
        """Numbers of replicas: the row's own, or the fewest and the most there may be, each group
        of ranks with requests of its own in use.
        """
        stated = self.cells[f"{part}_num_workers"]
        if np.isfinite(stated):
            return {max(int(stated), 1)}
        most = min(int(_FACTS["most_replicas"][part]), self.users // served.ranks.dp)
        return {1, max(most, 1)}

    @property
    def _asked(self) -> Document:
        """What the harness asks of this server."""
        cells, asked = self.cells, Document()
        name = f"{cells['backend']}/{served_workload(cells['model_path']).name}"
        for row in _FACTS["harness"]:
            if row["of"] == name and self._is_where(row.get("where", {})):
                asked |= row["asks"]
        return asked

    def _is_where(self, where: Values) -> bool:
        """Whether a row of the harness speaks of this system."""
        cells = self.cells
        lengths = f"{cells['isl']:g}+{cells['osl']:g}"
        own = {"system": cells["system"], "precision": cells["precision"], "lengths": lengths}
        own["own_attention"] = self._count("attention_dp_size") > 1
        return (
            all(where.get(key, value) == value for key, value in own.items())
            and self.users >= where.get("from_users", 0)
            and cells["tp_size"] in where.get("tp", (cells["tp_size"],))
        )

    def _load(self) -> Load:
        """The loop, with what the harness asks of the engine."""
        asked = self._asked
        own = {key: value for key, value in asked.items() if key in ServingEngine.model_fields}
        settings = {key: value for key, value in own.items() if key != "memory_fraction"}
        return Load(
            self.users,
            _length(self.cells["isl"]),
            _length(self.cells["osl"]),
            self._batch_tokens(asked.get("batch_tokens", _BATCH_TOKENS)),
            asked.get("requests_per_user", REQUESTS_PER_USER),
            tuple(settings.items()),
        )

    def _batch_tokens(self, tokens: int | str) -> int:
        """Tokens of a step."""
        prompt, output = round(self.cells["isl"]), round(self.cells["osl"])
        if tokens == "prompt":  # in blocks of 64, with one to spare
            blocks = (prompt + self.users + 127) // 64
            return max(int(blocks * 64), _BATCH_TOKENS)
        return prompt + output if tokens == "sequence" else int(tokens)

    def like(self, row: MeasuredRun, figure: str) -> MeasuredRun:
        """A row with the measured figures that the system's are like."""
        is_split = self.cells["mode"] != "agg"
        served = self._served("decode_" if is_split else "")
        return like_figure(row, served, figure, is_split=is_split)

    def _served(self, part: str) -> Served:
        cells = self.cells
        workload = served_workload(cells["model_path"])
        if self._count(f"{part}pp_size") > 1:
            raise InvalidValueError("pp_size", cells[f"{part}pp_size"], "1: stages are not asked")
        ranks = ranks_of(cells, part, self.usual)
        precision = served_precision(workload, cells["model_path"], *stated_formats(cells))
        device = device_of(cells["system"]).name
        kept = {name: self._asked.get(name) for name in ("kv_format", "memory_fraction")}
        return Served(workload, precision, served_engine(cells), device, ranks, **kept)

    def _count(self, name: str) -> int:
        """A number of ranks or replicas; 1 where the row does not state it."""
        value = self.cells[name]
        return max(int(value), 1) if np.isfinite(value) else 1


def served_engine(cells: Values) -> str:
    """The engine of a row in its version, as ``name@version``.

    Raises:
        UnknownNameError: If there is no such engine.
    """
    backend, stated = cells["backend"], cells["backend_version"] or ""
    name = _FACTS["engines"].get(backend)
    if name is None:
        known = sorted(_FACTS["engines"])
        raise UnknownNameError("engine", backend, known, f"Engines: {', '.join(known)}.")
    return f"{name}@{_FACTS['releases'][backend].get(stated, stated)}"


def spanned(times: Sequence[TokenTimes], figure: str) -> tuple[float, float]:
    """The geometric middle of a figure over systems that a row may be, and the standard deviation
    of ln(true / middle) whose 90 % interval holds those of all.

    Args:
        times: Of each system.
        figure: A field of `TokenTimes`.
    """
    ends_s = [getattr(one, figure) for one in times]
    low_s, high_s = min(ends_s), max(ends_s)
    half = 0.5 * math.log(high_s / low_s)
    return math.sqrt(low_s * high_s), max(one.log_sigma for one in times) + half / Z90


def _length(stated: float) -> str:
    return f"uniform:{max(round(_LEAST_SHARE * stated), 1)}-{round(stated)}"


def _label(cells: Values, users: int) -> str:
    """A row's system and load; its parallelism as stated."""
    counts = [cells[part + name] for part in ("", "prefill_", "decode_") for name in COUNTS]
    counts += [cells[f"{part}_num_workers"] for part in ("prefill", "decode")]
    return label_of(
        model=cells["model_path"],
        lengths=f"{cells['isl']:g}+{cells['osl']:g}",
        users=f"{users} users",
        mode="together" if cells["mode"] == "agg" else "split",
        format=cells["precision"],
        engine=cells["backend"],
        parallelism="-".join(f"{count:g}" for count in counts if np.isfinite(count)),
    )


@lru_cache(maxsize=64)
def served_workload(path: str) -> Workload:
    """The model, by its repository's name: without organisation, and without format, date and
    tuning at its end where the catalogue has no such name.

    Args:
        path: Name of its repository.

    Raises:
        UnknownNameError: If there is none.
        InvalidValueError: If operators of it are not modelled.
    """
    name = path.rpartition("/")[2].lower()
    while True:
        try:
            return workload_of(name)
        except UnknownNameError:
            if reason := _FACTS["refused"].get(name):
                raise InvalidValueError("model", path, reason) from None
            shorter = _VARIANT.sub("", name)
            if shorter == name:
                known = workload_names()
                raise UnknownNameError("workload", path, known) from None
            name = shorter


def stated_formats(cells: Values) -> tuple[str, str]:
    """The format of a row's products, and that of its experts where its weights are of another
    width; else empty.
    """
    products, experts = (
        str(_FACTS["formats"].get(cells[name], cells[name]) or "")
        for name in ("gemm_quant_mode", "moe_quant_mode")
    )
    stated = [form for form in (products, experts) if form]
    widths = {round(find_precision(form.removesuffix("_block")).weight.bytes, 1) for form in stated}
    if len(widths) > 1:
        return products, experts
    blocks = [form for form in stated if form.endswith("_block")]
    return (blocks or [products or cells["precision"]])[0], ""


def served_precision(workload: Workload, path: str, form: str, experts: str = "") -> Precision:
    """The precision of a row: as the checkpoint is published, where it is so in that format.

    Args:
        workload: The model.
        path: Its name in the table.
        form: The format that the row states; "fp8_block" has a scale per block of weights.
        experts: The format of experts, where it is another.

    Raises:
        UnknownNameError: If there is no such format.
        InvalidValueError: If experts have one of files.
    """
    named = _FACTS["formats"].get(form, form)
    asked, own = find_precision(named.removesuffix("_block")), workload.quantised
    is_own = any(path.lower().startswith(f"{name}/") for name in _FACTS["block_scaled"])
    if own is None and asked.name == "fp8" and (is_own or named.endswith("_block")):
        own = published_precision({"quantization_config": _FACTS["block_scaled_config"]})
    published = as_published(own, asked)
    apart = experts.removesuffix("_block") or None
    return ModelOptions(expert_precision=apart).policy(published)

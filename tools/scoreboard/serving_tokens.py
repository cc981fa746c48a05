"""Suites `serving-tpot`, `serving-ttft`, `serving-ttft-mean`: language models served on H200 nodes
by vLLM, SGLang and TensorRT-LLM, dense and mixtures of experts, prefill and decoding together and
apart.

The table (aiconfigurator-core's end-to-end file, used to score and never to fit) states model,
format, ranks, lengths and requests in flight. What it does not state is as the public InferenceMAX
harness does it: a closed loop of C users, lengths uniform between 0.8 and 1 of those stated, 10 C
requests, no end-of-sequence, no prefix cache, at most C sequences and 8,192 tokens a step. Times
to the first token are compared as medians, and as means in a suite beside it: the measured ones
rise with C by a twentieth of a prompt's time per user, whatever the length of the answers, as
means over ten requests per user do whose first come all at once. Where the harness starts a server
otherwise (FP8 cache, tokens of a step, share of memory), `serving_systems` says so. Formats of 4
bits are of weights alone: an H200 has no such arithmetic.

Ranks: where a row gives as many expert-tensor ranks as expert ranks and the product as its ranks
(64 on a node of 8), both are the same ranks. Rows that state no numbers of prefill and decode
replicas do not say which system was measured, those alike in all that they state differ by up to
2.5 times: they are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from accelsim.dtype import Precision
from accelsim.dtype import precision as find_precision
from accelsim.errors import InvalidValueError, UnknownNameError
from accelsim.frozen import frozen
from accelsim.plain import Values
from accelsim.scoreboard.data_folder import DataFolder, published, schema
from accelsim.scoreboard.measured_runs import MeasuredRun, run_batches
from accelsim.scoreboard.names import device_of, note_unknown_devices, workload_of
from accelsim.scoreboard.suite import MeasuredBatch, register_suite
from accelsim.workloads.checkpoints.quantization import published_precision
from accelsim.workloads.model import Workload
from tools.scoreboard.served_systems import (
    Load,
    Ranks,
    Served,
    TokenTimes,
    as_published,
    closed_loop,
    like_figure,
    split,
)

TOKENS_SCHEMA = schema("serving/measured_ttft_tpot_h200.csv")
_FACTS: Values = published("serving_systems")
_USERS = re.compile(r"silicon_concurrency=(\d+)")
_LEAST_SHARE = 0.8
_BATCH_TOKENS = 8192
#: Figures whose residuals are the spread of others like them; means have the medians'.
_MEDIANS = frozenset({"ttft_s", "tpot_s"})
_NOT_STATED = "the row states no numbers of prefill and decode replicas"


def _suite(
    name: str, title: str, quantity: str, column: str, figure: str
) -> Callable[[DataFolder], Sequence[MeasuredBatch]]:
    """A suite of one figure of the loops."""

    @register_suite(name, title, (TOKENS_SCHEMA,), "model", quantity=quantity, has_best_alone=True)
    def load(folder: DataFolder) -> list[MeasuredBatch]:
        table = folder.table(TOKENS_SCHEMA)
        if table is None:
            return []
        note_unknown_devices(folder, table, "system")
        return run_batches(_row(cells, cells[column] * 1e-3, figure) for cells in table.records())

    return load


_FIRST = "time to the first token"
_LOOPS = "language models served on H200 nodes"
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


def _row(cells: Values, measured_s: float, figure: str) -> MeasuredRun:
    model, backend, mode = (cells[name] for name in ("model_path", "backend", "mode"))
    users = _users(cells)
    label = f"{model} {cells['isl']:g}+{cells['osl']:g}, {users} users"
    row = MeasuredRun(cells["system"], f"{model} ({backend}, {mode})", label, measured_s)
    if not np.isfinite(measured_s) or not users:
        return row.refused("no such time, or no requests in flight, in the row")
    if mode == "disagg" and not np.isfinite(cells["decode_num_workers"]):
        return row.refused(_NOT_STATED)

    def answered(row: MeasuredRun) -> MeasuredRun:
        system = _System(cells, users)
        times = system.times()
        found = replace(row, predicted_s=getattr(times, figure), log_sigma=times.log_sigma)
        like_it = system.like(found, figure.partition("_")[0])
        return like_it if figure in _MEDIANS else replace(like_it, setting="")

    return row.answered(answered)


def _users(cells: Values) -> int:
    """Requests in flight: of the system, where the source says them."""
    found = _USERS.search(cells["silicon_data_source"])
    if found:
        return int(found.group(1))
    return int(np.nan_to_num(cells["batch_size"]))


@frozen
class _System:
    """One row's system."""

    cells: Values
    users: int

    def times(self) -> TokenTimes:
        """Predicted times.

        Raises:
            InputError: If the model is unknown or does not run; its subclasses say which.
        """
        prompt, output = (_length(self.cells[name]) for name in ("isl", "osl"))
        load = Load(self.users, prompt, output, self._batch_tokens)
        if self.cells["mode"] == "agg":
            return closed_loop(self._served(""), load)
        counts = [self._count(f"{part}_num_workers") for part in ("prefill", "decode")]
        prefill, decode = self._served("prefill_"), self._served("decode_")
        return split(prefill, counts[0], decode, counts[1], load)

    @property
    def _asked(self) -> Values:
        """What the harness asks of this server."""
        workload = served_workload(self.cells["model_path"])
        asked: Values = _FACTS["harness"].get(f"{self.cells['backend']}/{workload.name}", {})
        return asked

    @property
    def _batch_tokens(self) -> int:
        """Tokens of a step."""
        tokens = self._asked.get("batch_tokens", _BATCH_TOKENS)
        is_sequence = tokens == "sequence"
        return round(self.cells["isl"] + self.cells["osl"]) if is_sequence else int(tokens)

    def like(self, row: MeasuredRun, figure: str) -> MeasuredRun:
        """A row with the measured figures that the system's are like."""
        is_split = self.cells["mode"] != "agg"
        served = self._served("decode_" if is_split else "")
        return like_figure(row, served, figure, is_split=is_split)

    def _served(self, part: str) -> Served:
        cells = self.cells
        workload = served_workload(cells["model_path"])
        backend = cells["backend"]
        engine = _FACTS["engines"].get(backend)
        if engine is None:
            known = sorted(_FACTS["engines"])
            raise UnknownNameError("engine", backend, known, f"Engines: {', '.join(known)}.")
        if self._count(f"{part}pp_size") > 1:
            raise InvalidValueError("pp_size", cells[f"{part}pp_size"], "1: stages are not asked")
        names = ("tp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size")
        ranks = layout(*(self._count(part + name) for name in names))
        precision = served_precision(workload, cells["model_path"], cells["precision"])
        device = device_of(cells["system"]).name
        kept = {name: self._asked.get(name) for name in ("kv_format", "memory_fraction")}
        return Served(workload, precision, engine, device, ranks, **kept)

    def _count(self, name: str) -> int:
        """A number of ranks or replicas; 1 where the row does not state it."""
        value = self.cells[name]
        return max(int(value), 1) if np.isfinite(value) else 1


def layout(tp: int, dp: int, expert_tp: int, expert_ranks: int) -> Ranks:
    """How a replica's devices share a model.

    Args:
        tp: Ranks that share heads, as stated.
        dp: Groups of ranks with requests of their own, as stated.
        expert_tp: Ranks that share the columns of an expert.
        expert_ranks: Ranks that share the experts.
    """
    if expert_tp == expert_ranks > 1 and tp * dp == expert_tp * expert_ranks:
        return (
            Ranks(expert_ranks, 1, expert_ranks) if tp > 1 else Ranks(1, expert_ranks, expert_ranks)
        )
    groups = max(dp, expert_tp * expert_ranks // tp)
    return Ranks(tp, groups, tp * groups) if groups > 1 else Ranks(tp, 1, expert_ranks)


def _length(stated: float) -> str:
    return f"uniform:{max(round(_LEAST_SHARE * stated), 1)}-{round(stated)}"


@lru_cache(maxsize=64)
def served_workload(path: str) -> Workload:
    """The model, whatever the organisation that publishes it.

    Args:
        path: Name of its repository.

    Raises:
        UnknownNameError: If there is none, or operators of it are not modelled.
    """
    name = _FACTS["models"].get(base := path.rpartition("/")[2].lower(), base)
    reason = _FACTS["refused"].get(name)
    if reason:
        raise InvalidValueError("model", path, reason)
    return workload_of(name)


def served_precision(workload: Workload, path: str, form: str) -> Precision:
    """The precision of a row: as the checkpoint is published, where it is so in that format.

    Args:
        workload: The model.
        path: Its name in the table.
        form: The format that the row states.

    Raises:
        UnknownNameError: If there is no such format.
    """
    asked = find_precision(_FACTS["formats"].get(form, form))
    own = workload.quantised
    if path.rpartition("/")[2].lower() in _FACTS["block_scaled"]:
        own = published_precision({"quantization_config": _FACTS["block_scaled_config"]})
    return as_published(own, asked)

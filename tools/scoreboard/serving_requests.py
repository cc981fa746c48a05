"""Suite `serving-vllm`: a vLLM server's requests, one by one, on two cards.

Llama-3.1-8B on an RTX 4090 and an RTX PRO 6000, 300 requests of a trace each (LLMServingSim's
benchmark), far above what either serves at once. Arrivals are the times requests were queued;
128 sequences at most, as both runs show. The host's time per step is fitted to the mean time per
token of one card's requests, by halving a bracket of simulations; the *other* card's requests are
then predicted with it. Intervals are those of predicted step times.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from accelsim import catalog
from accelsim.estimation.options import RunOptions
from accelsim.scoreboard.data_folder import DataFolder, Table, published, schema
from accelsim.scoreboard.measured_runs import MeasuredRun, run_batches
from accelsim.scoreboard.names import workload_of
from accelsim.scoreboard.suite import MeasuredBatch, register_suite
from accelsim.serving.loads.requests import RequestColumns
from accelsim.serving.measures import RequestTimes
from accelsim.serving.options import ServingOptions
from accelsim.serving.plan import ReplicaPlan, replica_plan
from accelsim.serving.trust import ServedRun
from accelsim.workloads.graph import FloatArray
from accelsim.workloads.options import ModelOptions
from tools.scoreboard.served_systems import replayed, time_figures

REQUESTS_SCHEMA = schema("serving/vllm_requests_measured.csv")
_CARDS: Mapping[str, str] = published("serving_systems")["cards"]
_MAX_SEQS = 128
#: Bracket of the host's time per step, s, and its halvings.
_MOST_OVERHEAD_S, _HALVINGS = 0.01, 7


@register_suite(
    "serving-vllm",
    "requests of a vLLM server on two cards, each with the other's host overhead",
    (REQUESTS_SCHEMA,),
    "operator",
    has_best_alone=True,
)
def load(folder: DataFolder) -> list[MeasuredBatch]:
    """Means and percentiles of TTFT, TPOT and whole requests."""
    table = folder.filled(REQUESTS_SCHEMA)
    if table is None:
        return []
    cards = {name: _Card(name, table) for name in np.unique(table["hardware"]).tolist()}
    return run_batches(
        row
        for card in cards.values()
        for row in _rows(card, [other for other in cards.values() if other is not card])
    )


class _Card:
    """One card's requests, and the replica that is predicted to serve them."""

    def __init__(self, name: str, table: Table) -> None:
        rows = table.take(table["hardware"] == name)
        rows = rows.take(np.argsort(rows["queued_ts"], kind="stable"))
        self.name, self.rows, self.model = name, rows, str(rows["model"][0])
        lengths = (rows[column].astype(np.int64) for column in ("input_toks", "output_toks"))
        self.columns = RequestColumns(rows["queued_ts"] - rows["queued_ts"][0], *lengths)

    def measured(self) -> dict[str, float]:
        """Figures of what was measured."""
        rows = self.rows
        first_s, last_s = rows["first_token_ts"], rows["last_token_ts"]
        further = np.maximum(rows["output_toks"] - 1, 1)
        queued_s = rows["queued_ts"]
        return _figures(first_s - queued_s, (last_s - first_s) / further, last_s - queued_s)

    def predicted(self, overhead_s: float | None) -> dict[str, float]:
        """Figures of what is simulated with a host overhead; the engine's own where None."""
        return dict(_predicted(self, overhead_s))

    def overhead_s(self) -> float:
        """The host's time per step that gives the measured mean time per token."""
        wanted = self.measured()["TPOT mean"]
        low, high = 0.0, _MOST_OVERHEAD_S
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            is_less = self.predicted(middle)["TPOT mean"] < wanted
            low, high = (middle, high) if is_less else (low, middle)
        return low

    def log_sigma(self, figure: str) -> float:
        """Spread of a figure, as `accelsim.serve` takes it."""
        plan = self.plan(None)
        like = ServedRun(plan.run)
        spread = like.prompt_log_sigma if figure.startswith("TTFT") else like.common_log_sigma
        return spread(plan.steps)

    def plan(self, overhead_s: float | None) -> ReplicaPlan:
        """The replica."""
        return _plan(self.model, _CARDS[self.name], overhead_s)


@lru_cache(maxsize=64)
def _predicted(card: _Card, overhead_s: float | None) -> tuple[tuple[str, float], ...]:
    plan = card.plan(overhead_s)
    times = RequestTimes.of(replayed(card.columns, plan.steps, plan.limits))
    return tuple(_figures(times.ttft_s, times.tpot_s, times.e2e_s).items())


@lru_cache(maxsize=8)
def _tabulated(model: str, device: str) -> ReplicaPlan:
    options = ServingOptions(engine="vllm", max_seqs=_MAX_SEQS, prefix_cache=False)
    run = RunOptions(model=ModelOptions(precision="bf16"))
    workload = workload_of(model)
    return replica_plan(workload, catalog.device(device), run, options, max_context=8192)


def _plan(model: str, device: str, overhead_s: float | None) -> ReplicaPlan:
    plan = _tabulated(model, device)
    if overhead_s is None:
        return plan
    steps: Any = plan.steps
    return replace(plan, steps=replace(steps, overhead_s=overhead_s))


def _figures(*times_s: FloatArray) -> dict[str, float]:
    """Figures of times to the first token, per further token and to the end."""
    return time_figures(dict(zip(("TTFT", "TPOT", "e2e"), times_s, strict=True)), (50, 99))


def _rows(card: _Card, others: list[_Card]) -> Iterator[MeasuredRun]:
    def figure(row: MeasuredRun) -> MeasuredRun:
        overhead_s = float(np.mean([other.overhead_s() for other in others])) if others else None
        predicted_s = card.predicted(overhead_s)[row.group]
        return replace(row, predicted_s=predicted_s, log_sigma=card.log_sigma(row.group))

    for quantity, value in card.measured().items():
        row = MeasuredRun(_CARDS.get(card.name, card.name), quantity, card.name, value)
        is_known = card.name in _CARDS
        yield row.answered(figure) if is_known else row.refused(f"no profile of {card.name}")

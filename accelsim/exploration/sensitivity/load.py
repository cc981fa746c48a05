"""The same load served with one thing changed: its rate, the replicas, their limits and formats."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accelsim.exploration.sensitivity.change import Change, answered
from accelsim.serving.loads.arrivals import Arrivals
from accelsim.serving.loads.requests import RequestColumns
from accelsim.serving.options import ServingOptions
from accelsim.serving.result import ServingResult
from accelsim.serving.serve import serve

if TYPE_CHECKING:
    from accelsim.hardware.profile import DeviceProfile
    from accelsim.workloads.model import Workload

#: Requests that are simulated for each change at most: estimate, enough for medians.
_MOST_REQUESTS = 1000
_RATES = (0.5, 0.8, 1.25, 2.0)
_PRECISIONS = ("bf16", "fp16", "fp8", "int8")


def load_changes(
    workload: str | Path | Workload,
    device: str | DeviceProfile,
    load: Arrivals | RequestColumns,
    options: ServingOptions,
    base: ServingResult,
    **keywords: Any,
) -> list[Change[ServingResult]]:
    """The load as it is and with one thing changed at a time, the first thousand requests of each.

    Args:
        workload: What is served.
        device: By what.
        load: The load.
        options: How.
        base: Its answer.
        keywords: As `serve` takes them.
    """

    def ask(
        changed_load: Arrivals | RequestColumns, changed: ServingOptions, asked: dict[str, Any]
    ) -> ServingResult:
        also = keywords | asked
        return serve(workload, device, changed_load, changed, intervals=False, **also)

    return [
        answered(words, partial(ask, other, changed, asked), _against)
        for words, other, changed, asked in _changes(_first(load), options, base)
    ]


def _against(one: ServingResult) -> str:
    return "overloaded" if one.saturated else ""


_Change = tuple[str, "Arrivals | RequestColumns", ServingOptions, dict[str, Any]]


def _changes(
    load: Arrivals | RequestColumns, options: ServingOptions, base: ServingResult
) -> Iterator[_Change]:
    yield "as it is", load, options, {}
    if isinstance(load, Arrivals):
        yield from ((words, other, options, {}) for words, other in _other_loads(load))
    seqs = int(base.plan["max_seqs"])
    for words, changed in _other_options(options, seqs):
        yield words, load, replace(options, **changed), {}  # type: ignore[arg-type]
    used = base.inputs["run"].get("precision")
    for name in _PRECISIONS:
        if name != used:
            yield f"precision {name}", load, options, {"precision": name}


def _other_loads(load: Arrivals) -> Iterator[tuple[str, Arrivals]]:
    for ratio in _RATES:
        if load.rate_per_s is not None:
            yield f"load x {ratio:g}", replace(load, rate_per_s=ratio * load.rate_per_s)
        elif load.users is not None:
            users = max(round(ratio * load.users), 1)
            yield f"{users:,} users", replace(load, users=users)


def _other_options(options: ServingOptions, seqs: int) -> Iterator[tuple[str, dict[str, int]]]:
    replicas = options.replicas
    for count in sorted({max(replicas - 1, 1), replicas + 1} - {replicas}):
        yield f"replicas {count:,}", {"replicas": count}
    for count in sorted({max(seqs // 2, 1), 2 * seqs} - {seqs}):
        yield f"at most {count:,} at once", {"max_seqs": count}
    if options.cluster is None:
        yield f"tensor parallel {2 * options.tp}", {"tp": 2 * options.tp}


def _first(load: Arrivals | RequestColumns) -> Arrivals | RequestColumns:
    """The first requests of a load."""
    if isinstance(load, Arrivals):
        return replace(load, requests=min(load.count, _MOST_REQUESTS))
    parts: dict[str, Any] = {
        f.name: None if (one := getattr(load, f.name)) is None else one[:_MOST_REQUESTS]
        for f in fields(load)
    }
    return RequestColumns(**parts)

"""Software stacks as rows and tables: a list, and one stack with the source of all it says; formats
and intervals of runs on them in words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from accelsim.catalog.stacks import Stack
from accelsim.confidence.quantiles import Z90
from accelsim.dtype import PRECISIONS
from accelsim.plain import Document, Values
from accelsim.quantity import UNKNOWN, say
from accelsim.report.listing import Listing

if TYPE_CHECKING:
    from accelsim.estimation.estimate import Estimate

#: Columns every row has, whatever the stacks.
STACK_COLUMNS = (
    "name",
    "title",
    "versions",
    "measured_versions",
    "runs_on",
    "modes",
    "generation_only",
    "ways",
    "layouts",
    "spread_log_sigma",
    "spread_rows",
    "source",
)


def stack_row(stack: Stack) -> Document:
    """What one stack is; spreads of ln(time) and the rows behind them by class and mode."""
    whole = [spread for spread in stack.spreads if spread.family is None]
    spreads = {f"{one.device_class} {one.mode}": one for one in whole}
    return {
        "name": stack.name,
        "title": stack.title,
        "versions": [version.version for version in stack.versions],
        "measured_versions": stack.measured,
        "runs_on": {kind: list(vendors) or ["all"] for kind, vendors in stack.runs_on.items()},
        "modes": list(stack.modes),
        "generation_only": stack.generation_only,
        "ways": {name: f"{path.launch}, fuses {path.fuses}" for name, path in stack.paths.items()},
        "layouts": list(stack.layouts),
        "spread_log_sigma": {place: one.log_sigma for place, one in spreads.items()},
        "spread_rows": {place: one.rows for place, one in spreads.items()},
        "source": stack.source,
    }


def stacks_table(rows: Sequence[Values]) -> RenderableType:
    """Rows of `stack_row`, one line each."""
    shown = [
        {
            **row,
            "places": _places(row),
            "fuses": tuple(dict.fromkeys(way.rpartition(" ")[2] for way in row["ways"].values())),
            "gpu": _spread_words(row["spread_log_sigma"].get("gpu inference")),
            "cpu": _spread_words(row["spread_log_sigma"].get("cpu inference")),
        }
        for row in rows
    ]
    columns = "stack=name | ~versions | ~runs on=places | ~fuses | >GPU 90 %=gpu | >CPU 90 %=cpu"
    return Listing.of(columns, shown)


def _places(row: Values) -> str:
    """Classes of devices that a stack runs on, with their vendors."""
    return ", ".join(_place_words(*place) for place in row["runs_on"].items())


def _place_words(kind: str, vendors: Sequence[str]) -> str:
    return kind.upper() if list(vendors) == ["all"] else f"{kind.upper()} ({', '.join(vendors)})"


def _spread_words(log_sigma: float | None) -> str:
    """Factor either way that holds 90 % of whole networks; 0 where nothing was measured."""
    if not log_sigma:
        return UNKNOWN if log_sigma is None else "no rows"
    return f"x{np.exp(Z90 * log_sigma):.2f}"


def stack_document(stack: Stack) -> Document:
    """A stack for JSON: all that its file says."""
    return {
        **stack_row(stack),
        "versions": [version.model_dump(mode="json") for version in stack.versions],
        "ways": {name: path.model_dump(mode="json") for name, path in stack.paths.items()},
        "layouts": {name: one.model_dump(mode="json") for name, one in stack.layouts.items()},
        "memory_fraction": stack.memory_fraction,
        "trainer": stack.model_dump(mode="json", include=_TRAINER) if stack.trains else None,
        "ratios": [one.model_dump(mode="json") for one in stack.achieved],
        "spreads": [
            {**spread.model_dump(mode="json"), "family": spread.family or "whole"}
            for spread in stack.spreads
        ],
    }


#: What a stack says of how it trains.
_TRAINER = {"recompute", "attention", "cast_bytes", "communication_sms", "gathers"}
#: Rows of a stack's document -> the columns that they are shown in.
_TABLES = {
    "versions": "version | ~differs | ~source",
    "ways": "way=name | issues=launch | fuses | ~source",
    "layouts": "layout=name | >time=cost | ~source",
    "ratios": "class=device_class | mode | family | >time over the model's=x{time_ratio:decimal}",
    "spreads": "class=device_class | mode | family | >90 % within=spread | >rows behind it=behind",
}


def stack_view(document: Values) -> RenderableType:
    """A `stack_document` as text."""
    d = document
    only = "; language models that generate tokens alone" if d["generation_only"] else ""
    named = {
        name: [{"name": key, **one} for key, one in d[name].items()] for name in ("ways", "layouts")
    }
    rows = {**d, **named}
    rows["versions"] = [{**one, "differs": _differences(one)} for one in d["versions"]]
    rows["layouts"] = [
        {**one, "cost": say("[turns maps, from {transform_us:decimal} us]", one)}
        for one in named["layouts"]
    ]
    rows["spreads"] = [
        {**one, "spread": _spread_words(one["log_sigma"]), "behind": one["rows"] or "none"}
        for one in d["spreads"]
    ]
    heading = (
        f"runs on {_places(d)}: {' and '.join(d['modes'])}{only}\n"
        f"its ratios are of versions {d['measured_versions']}; {d['source']}\n"
    )
    if d["trainer"]:
        heading += f"{_trainer_words(d['trainer'])}\n"
    tables = [Listing.of(columns, rows[name]) for name, columns in _TABLES.items()]
    return Group(
        Text(f"{d['title']} ({d['name']})", style="bold cyan"),
        Text(heading),
        *(part for table in tables if table.rows for part in (table, Text(""))),
    )


def _trainer_words(trainer: Values) -> str:
    """How a trainer works, one line."""
    kernels = ", ".join(f"{name} on {where}" for where, name in trainer["attention"].items())
    words = [
        f"attention by {kernels}" if kernels else "",
        f"recomputes {trainer['recompute']} where a plan does not say",
        f"gathers sharded weights by the {trainer['gathers']}",
        say("[casts move {cast_bytes:decimal} bytes an element]", trainer)
        if trainer["cast_bytes"]
        else "",
        f"collectives hold {trainer['communication_sms']} multiprocessors"
        if trainer["communication_sms"]
        else "",
    ]
    return "; ".join(filter(None, words))


def _differences(version: Values) -> str:
    """What a version has not, or does otherwise."""
    lacks = [*version["lacks_paths"], *version["lacks_precisions"]]
    host = version["gpu_host_ratio"]
    words = [
        f"without {', '.join(lacks)}" if lacks else "",
        "launches one by one" if version["is_eager"] else "",
        "" if version["fused_attention"] else "attention in parts",
        "" if host == 1 else f"issues operators in {host:g} of the time",
        "waits for the counts of experts' tokens" if version["experts_wait"] else "",
        say("[{stage_us:decimal} us a microbatch on a stage]", version)
        if version["stage_us"]
        else "",
        say("[{rank_part_us:decimal} us a rank of a gather]", version)
        if version["rank_part_us"]
        else "",
    ]
    return "; ".join(filter(None, words))


#: Formats that keys and values are usually cached in.
_WIDE = ("fp32", "bf16", "fp16")
#: Figures that share an interval -> one of them.
_SPREADS = {"time and cost": "latency_s", "energy": "energy_per_sample_j"}


def format_words(e: Estimate) -> list[str]:
    """Formats of a run that are not its precision's: of arithmetic, experts and cached keys."""
    cached, experts = e.inputs.get("kv_format"), e.inputs.get("expert_precision")
    is_usual = not e.output_len or cached in {None, *_WIDE, e.precision}
    parts = (
        widened_words(e),
        f"experts {experts}" if experts else "",
        "" if is_usual else f"KV cache {cached}",
    )
    return [words for words in parts if words]


def widened_words(e: Estimate) -> str:
    """Format of the arithmetic where the device has none of the precision's; empty where it has."""
    usual, computed = PRECISIONS.get(e.precision), e.inputs.get("compute_format")
    is_own = usual is None or computed in {None, usual.compute.label}
    return "" if is_own else f"computed in {computed}"


def interval_words(estimates: Sequence[Estimate]) -> str:
    """Factors between figures and the ends of their intervals, least and greatest."""
    words = []
    for what, column in _SPREADS.items():
        ends = (e.interval(column) for e in estimates)
        factors = [(high / low) ** 0.5 for low, high, _ in ends if low and high]
        if factors:
            words.append(f"{what} a factor of {min(factors):.2f} to {max(factors):.2f}")
    return f"90 % intervals: {', '.join(words)}"


def stack_words(stack: str, execution: str) -> str:
    """A stack, with its mode where it has several."""
    return f"{stack} {execution}" if stack.partition("@")[0] == "pytorch" else stack

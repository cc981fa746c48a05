"""Software stacks as rows and tables: a list, one stack with the source of all it says, and engines
of ``accelsim serve`` by version; formats and intervals of runs on them in words.
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
from accelsim.hardware.profile import DeviceProfile
from accelsim.plain import Document, Rows, Values
from accelsim.quantity import UNKNOWN, say
from accelsim.report.listing import Listing, heading

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
    spreads = {
        f"{spread.device_class} {spread.mode}": spread
        for spread in stack.spreads
        if spread.family is None
    }
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
        "spread_log_sigma": {use: spread.log_sigma for use, spread in spreads.items()},
        "spread_rows": {use: spread.rows for use, spread in spreads.items()},
        "source": stack.source,
    }


def stacks_table(rows: Rows) -> RenderableType:
    """Rows of `stack_row`, one line each."""
    shown = [
        {
            **row,
            "devices": _devices(row),
            "fuses": tuple(dict.fromkeys(way.rpartition(" ")[2] for way in row["ways"].values())),
            "gpu": _spread(row["spread_log_sigma"].get("gpu inference")),
            "cpu": _spread(row["spread_log_sigma"].get("cpu inference")),
        }
        for row in rows
    ]
    columns = "stack=name | ~versions | ~runs on=devices | ~fuses | >GPU 90 %=gpu | >CPU 90 %=cpu"
    return Listing.of(columns, shown)


def _devices(row: Values) -> str:
    """Classes of devices that a stack runs on, with their vendors."""
    return ", ".join(
        kind.upper() if list(vendors) == ["all"] else f"{kind.upper()} ({', '.join(vendors)})"
        for kind, vendors in row["runs_on"].items()
    )


def _spread(log_sigma: float | None) -> str:
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
        "layouts": {name: layout.model_dump(mode="json") for name, layout in stack.layouts.items()},
        "memory_fraction": stack.memory_fraction,
        "trainer": stack.model_dump(mode="json", include=_TRAINER) if stack.trains else None,
        "ratios": [ratio.model_dump(mode="json") for ratio in stack.achieved],
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


#: How a trainer works, and what a version has not, or does otherwise.
_TRAINS = (
    "[; attention by {kernels}]; recomputes {recompute} where a plan does not say; gathers sharded "
    "weights by the {gathers}[; casts move {cast_bytes:decimal} bytes an element]"
    "[; collectives hold {communication_sms} multiprocessors]"
)
_DIFFERS = (
    "[; without {lacks}][; {launches}][; {attention}][; issues operators in {host:digits} of the "
    "time][; {waits}][; {stage_us:decimal} us a microbatch on a stage]"
    "[; {rank_part_us:decimal} us a rank of a gather]"
)


def stack_view(document: Values) -> RenderableType:
    """A `stack_document` as text."""
    d = document
    only = "; language models that generate tokens alone" if d["generation_only"] else ""
    text = (
        f"runs on {_devices(d)}: {' and '.join(d['modes'])}{only}\n"
        f"its ratios are of versions {d['measured_versions']}; {d['source']}\n"
    )
    if d["trainer"]:
        text += f"{_trainer(d['trainer'])}\n"
    rows = {"ratios": d["ratios"], **_stack_rows(d)}
    tables = [Listing.of(columns, rows[name]) for name, columns in _TABLES.items()]
    shown = (view for table in tables if table.rows for view in (table, ""))
    return Group(heading(d), Text(text), *shown)


def _stack_rows(d: Values) -> dict[str, Rows]:
    """Rows of a stack's tables, with what they say in words."""
    return {
        "versions": [{**version, "differs": _differences(version)} for version in d["versions"]],
        "ways": [{"name": name, **way} for name, way in d["ways"].items()],
        "layouts": [
            {"name": name, "cost": say("[turns maps, from {transform_us:decimal} us]", layout)}
            | {"source": layout["source"]}
            for name, layout in d["layouts"].items()
        ],
        "spreads": [
            {**spread, "spread": _spread(spread["log_sigma"]), "behind": spread["rows"] or "none"}
            for spread in d["spreads"]
        ],
    }


def _trainer(trainer: Values) -> str:
    """How a trainer works, one line."""
    kernels = ", ".join(f"{name} on {where}" for where, name in trainer["attention"].items())
    cast_bytes = trainer["cast_bytes"] or None
    return say(_TRAINS, {**trainer, "kernels": kernels, "cast_bytes": cast_bytes})[2:]


def _differences(version: Values) -> str:
    """What a version has not, or does otherwise."""
    values = {
        "lacks": ", ".join([*version["lacks_paths"], *version["lacks_precisions"]]),
        "launches": version["is_eager"] and "launches one by one",
        "attention": "" if version["fused_attention"] else "attention in parts",
        "host": None if version["gpu_host_ratio"] == 1 else version["gpu_host_ratio"],
        "waits": version["experts_wait"] and "waits for the counts of experts' tokens",
        "stage_us": version["stage_us"] or None,
        "rank_part_us": version["rank_part_us"] or None,
    }
    return say(_DIFFERS, values)[2:]


#: Formats that keys and values are usually cached in.
_WIDE = ("fp32", "bf16", "fp16")
#: Figures that share an interval -> one of them.
_SPREADS = {"time and cost": "latency_s", "energy": "energy_per_sample_j"}


def format_words(e: Estimate) -> list[str]:
    """Formats of a run that are not its precision's: of arithmetic, experts and cached keys."""
    cached, experts = e.inputs.get("kv_format"), e.inputs.get("expert_precision")
    is_usual = not e.output_len or cached in {None, *_WIDE, e.precision}
    texts = (
        widened_words(e),
        f"experts {experts}" if experts else "",
        "" if is_usual else f"KV cache {cached}",
    )
    return [text for text in texts if text]


def widened_words(e: Estimate) -> str:
    """Format of the arithmetic where the device has none of the precision's; empty where it has."""
    usual, computed = PRECISIONS.get(e.precision), e.inputs.get("compute_format")
    has_format = usual is None or computed in {None, usual.compute.label}
    return "" if has_format else f"computed in {computed}"


def interval_words(estimates: Sequence[Estimate]) -> str:
    """Factors between figures and the ends of their intervals, least and greatest."""
    texts = []
    for quantity, figure in _SPREADS.items():
        ends = (e.interval(figure) for e in estimates)
        factors = [(high / low) ** 0.5 for low, high, _ in ends if low and high]
        if factors:
            texts.append(f"{quantity} a factor of {min(factors):.2f} to {max(factors):.2f}")
    return f"90 % intervals: {', '.join(texts)}"


def stack_words(stack: str, execution: str) -> str:
    """A stack, with its mode where it has several."""
    return f"{stack} {execution}" if stack.partition("@")[0] == "pytorch" else stack


#: Columns of every row of an engine.
ENGINE_COLUMNS = (
    "name",
    "versions",
    "max_batch_tokens",
    "max_seqs",
    "memory_rule",
    "memory_fraction",
    "prefix_cache",
    "chunked",
    "schedules_ahead",
    "step_overhead_s",
    "source",
)


def engine_rows(device: DeviceProfile) -> list[Document]:
    """What each version of each engine does by itself on one device."""
    from accelsim.catalog.engines import engine_names, engine_versions

    rows = []
    for name in engine_names():
        for version in engine_versions(name):
            tokens = version.limit("max_batch_tokens", device)
            limits = {
                "name": name,
                "versions": version.span.text,
                "max_batch_tokens": tokens,
                "max_seqs": version.limit("max_seqs", device),
                "memory_fraction": version.share(device, tokens, 1, 1),
                "step_overhead_s": version.step_overhead_s.value,
            }
            row = version.model_dump(mode="json", include=set(ENGINE_COLUMNS)) | limits
            rows.append({column: row[column] for column in ENGINE_COLUMNS})
    return rows


def engines_table(rows: Rows) -> RenderableType:
    """Rows of `engine_rows`, one line each, and their sources."""
    columns = (
        "engine=name | versions | >tokens=max_batch_tokens | >sequences=max_seqs | "
        ">memory=memory_fraction | prefixes=prefix_cache | ahead=schedules_ahead | "
        ">host=step_overhead_s"
    )
    return Group(Listing.of(columns, rows), "", *(Text(row["source"]) for row in rows))

"""Workloads as rows and tables: the list, one model with its layers, and our figures beside the
published ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from accelsim.dtype import PRECISIONS
from accelsim.frozen import frozen
from accelsim.plain import Document, Values
from accelsim.report.listing import Listing, plain_table
from accelsim.report.quantity import amount, number, percent
from accelsim.workloads.cache import SequenceCache
from accelsim.workloads.graph import OperatorGraph
from accelsim.workloads.model import Lowered, PassShape, Published, Workload
from accelsim.workloads.operator import OperatorKind, Phase

_PATH_DEPTH = 2
_SUMMED = ("flop", "bytes", "weight_bytes")


@frozen
class FigureCheck:
    """A published figure and ours.

    Attributes:
        workload: Workload name.
        quantity: "parameters" or "flop".
        published: The published value.
        ours: What the lowered graph has.
        tolerance_fraction: Allowed relative difference.
        source: Where it was published.
    """

    workload: str
    quantity: str
    published: float
    ours: float
    tolerance_fraction: float
    source: str

    @property
    def difference_fraction(self) -> float:
        """(ours - published) / published."""
        return self.ours / self.published - 1.0

    @property
    def agrees(self) -> bool:
        """Whether the difference is within the tolerance."""
        return abs(self.difference_fraction) <= self.tolerance_fraction

    def to_dict(self) -> Document:
        """Plain values."""
        own = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return own | {"difference_fraction": self.difference_fraction, "agrees": self.agrees}


def forward_pass(workload: Workload, shape: PassShape) -> Lowered:
    """One forward pass in fp32, as model sizes are counted."""
    return workload.lower(shape, PRECISIONS["fp32"], Phase.FORWARD)


def sequence_cache(workload: Workload, shape: PassShape) -> SequenceCache:
    """What a model that generates keeps of one sequence, in bf16."""
    if not workload.autoregressive:
        return SequenceCache()
    return workload.lower(shape, PRECISIONS["bf16"], Phase.PREFILL).cache


def check_figures(workload: Workload) -> list[FigureCheck]:
    """Compare every published figure of a workload with its lowered graph.

    Raises:
        InputError: If the workload cannot be lowered.
    """
    return [_check(workload, figure) for figure in workload.published]


def _check(workload: Workload, figure: Published) -> FigureCheck:
    lowered = forward_pass(workload, figure.shape)
    ours = lowered.parameter_count if figure.quantity == "parameters" else lowered.graph.model_flop
    name, quantity, value = workload.name, figure.quantity, figure.value
    return FigureCheck(name, quantity, value, float(ours), figure.tolerance_fraction, figure.source)


def workload_row(workload: Workload) -> Document:
    """One workload without lowering it; the parameter count is the published one, None where none
    is given.
    """
    counts = [figure.value for figure in workload.published if figure.quantity == "parameters"]
    default = workload.default
    return {
        "name": workload.name,
        "title": workload.title,
        "task": workload.task,
        "family": None if workload.family is None else workload.family.name,
        "published_parameters": counts[0] if counts else None,
        "autoregressive": workload.autoregressive,
        "default_batch": default.batch,
        "default_seq_len": default.seq_len or None,
        "default_output_len": workload.output_len or None,
        "default_image_size": default.image_size or None,
        "aliases": list(workload.aliases),
    }


def workloads_table(rows: Sequence[Values]) -> RenderableType:
    """Rows of `workload_row`, one line each."""
    cells = [
        (row["name"], row["title"], row["task"], number(row["published_parameters"]))
        for row in rows
    ]
    return Listing.of("name | ~title | task | >parameters", cells, "task", gap=2)


def layer_groups(graph: OperatorGraph) -> list[Document]:
    """Operators by the first parts of their module path and their kind, in graph order.

    Args:
        graph: The operators.
    """
    groups: dict[tuple[str, str], list[int]] = {}
    for row, (path, kind) in enumerate(zip(graph.path, graph.kind.tolist(), strict=True)):
        key = (".".join(path.split(".")[:_PATH_DEPTH]), OperatorKind(kind).label)
        groups.setdefault(key, []).append(row)
    return [_group(graph, path, kind, np.asarray(rows)) for (path, kind), rows in groups.items()]


def _group(graph: OperatorGraph, path: str, kind: str, rows: np.ndarray[Any, Any]) -> Document:
    sums = {name: float(getattr(graph, name)[rows].sum()) for name in _SUMMED}
    return {"path": path, "kind": kind, "operator_count": len(rows)} | sums


def workload_document(workload: Workload, *, operators: bool = False) -> Document:
    """A workload for JSON: its description, size, published figures and, if asked for, its layer
    groups.
    """
    shape = workload.default
    lowered, cache = forward_pass(workload, shape), sequence_cache(workload, shape)
    document = workload_row(workload) | {
        "note": workload.note,
        "parameter_count": lowered.parameter_count,
        "flop": lowered.graph.model_flop,
        "operator_count": len(lowered.graph),
        "kv_bytes_per_token": cache.token_bytes or None,
        "windowed_kv_bytes_per_token": cache.windowed_bytes or None,
        "window_tokens": cache.window_tokens or None,
        "state_bytes": cache.state_bytes or None,
        "published": [check.to_dict() for check in check_figures(workload)],
    }
    return document | ({"operators": layer_groups(lowered.graph)} if operators else {})


def workload_view(document: Values) -> RenderableType:
    """The document of a workload for a terminal."""
    grid = plain_table(("", ""), fold=(1,))
    grid.show_header = False
    for label, text in _lines(document):
        grid.add_row(Text(label, style="bold"), Text(text))
    parts: list[RenderableType] = [
        Text(f"{document['title']} ({document['name']})", style="bold cyan"),
        grid,
    ]
    if document["published"]:
        parts += [Text(""), checks_table(document["published"], sources=True)]
    if "operators" in document:
        parts += [Text(""), layers_table(document["operators"])]
    return Group(*parts)


def _cache(document: Values) -> str:
    """What a sequence keeps, in words."""
    token, windowed, state = (
        amount(document[name], "B", small=False) if document[name] else ""
        for name in ("kv_bytes_per_token", "windowed_kv_bytes_per_token", "state_bytes")
    )
    parts = [f"{token} per token"] if token else []
    if windowed:
        parts.append(f"{windowed} of them for the last {document['window_tokens']:,} tokens alone")
    if state:
        parts.append(f"{state} of states per sequence")
    return f"{', '.join(parts)} (bf16)" if parts else ""


def _lines(document: Values) -> list[tuple[str, str]]:
    names = ("batch", "seq_len", "output_len", "image_size")
    sizes = [(name, document[f"default_{name}"]) for name in names]
    work = amount(document["flop"], "FLOP", small=False)
    lines = [
        ("task", document["task"]),
        ("family", document["family"] or "captured module"),
        ("default run", ", ".join(f"{name} {size:,}" for name, size in sizes if size)),
        ("parameters", number(document["parameter_count"])),
        ("forward pass", f"{work}, {document['operator_count']:,} operators"),
        ("cache", _cache(document)),
        ("also called", ", ".join(document["aliases"])),
        ("note", document["note"]),
    ]
    return lines[:5] + [line for line in lines[5:] if line[1]]


def checks_table(rows: Sequence[Values], *, sources: bool = False) -> RenderableType:
    """Rows of `FigureCheck.to_dict`.

    Args:
        rows: The checks.
        sources: Whether to show where each figure was published, instead of the model's name.
    """
    about = "source" if sources else "model"
    table = plain_table(
        (about, "figure", "published", "ours", "differs", ""), right=(2, 3, 4), fold=(0,)
    )
    for row in rows:
        verdict = Text("ok", style="green") if row["agrees"] else Text("DIFFERS", style="bold red")
        figures = (
            number(row["published"]),
            number(row["ours"]),
            percent(row["difference_fraction"]),
        )
        named = Text(row["source"] if sources else row["workload"])
        table.add_row(named, row["quantity"], *figures, verdict)
    return table


def layers_table(rows: Sequence[Values]) -> RenderableType:
    """Rows of `layer_groups`."""
    cells = [
        (
            row["path"] or "(model)",
            row["kind"],
            f"{row['operator_count']:,}",
            *(number(row[name]) for name in _SUMMED),
        )
        for row in rows
    ]
    titles = "~layers | kind | >operators | >FLOP | >bytes | >weights"
    return Listing.of(titles, cells, gap=2)

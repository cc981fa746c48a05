"""Workloads as rows and tables: the list, one model with its layers, and our figures beside the
published ones.
"""

from __future__ import annotations

import numpy as np
from rich.console import Group, RenderableType

from accelsim.catalog.published_figures import check_figures, forward_pass
from accelsim.dtype import PRECISIONS
from accelsim.plain import Document, Rows, Values, grouped
from accelsim.quantity import say
from accelsim.report.listing import Listing, filled, heading, pairs
from accelsim.workloads.cache import SequenceCache
from accelsim.workloads.graph import IntArray, OperatorGraph
from accelsim.workloads.model import PassShape, Workload
from accelsim.workloads.operator import OperatorKind, Phase

_PATH_DEPTH = 2
_SUMMED = ("flop", "bytes", "weight_bytes")


def sequence_cache(workload: Workload, shape: PassShape) -> SequenceCache:
    """What a model that generates keeps of one sequence, in bf16."""
    if not workload.autoregressive:
        return SequenceCache()
    return workload.lower(shape, PRECISIONS["bf16"], Phase.PREFILL).cache


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


def workloads_table(rows: Rows) -> RenderableType:
    """Rows of `workload_row`, one line each."""
    return Listing.of("name | ~title | task | >parameters=published_parameters:number", rows, gap=2)


def layer_groups(graph: OperatorGraph) -> list[Document]:
    """Operators by the first parts of their module path and their kind, in graph order.

    Args:
        graph: The operators.
    """
    keys = [
        (".".join(path.split(".")[:_PATH_DEPTH]), OperatorKind(kind).label)
        for path, kind in zip(graph.path, graph.kind.tolist(), strict=True)
    ]
    groups = grouped(range(len(keys)), keys.__getitem__)
    return [_group(graph, path, kind, np.asarray(rows)) for (path, kind), rows in groups.items()]


def _group(graph: OperatorGraph, path: str, kind: str, rows: IntArray) -> Document:
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


#: What a sequence keeps.
_CACHE = (
    "[, {kv_bytes_per_token} per token][, {windowed_kv_bytes_per_token} of them for the last "
    "{window_tokens} tokens alone][, {state_bytes} of states per sequence]"
)
#: What is said of a workload, line by line.
_LINES = {
    "task": "{task}",
    "family": "{of_family}",
    "default run": "[batch {default_batch}][, seq_len {default_seq_len}]"
    "[, output_len {default_output_len}][, image_size {default_image_size}]",
    "parameters": "{parameter_count:number}",
    "forward pass": "{flop}, {operator_count} operators",
    "cache": "[{cache} (bf16)]",
    "also called": "[{aliases}]",
    "note": "[{note}]",
}


def workload_view(document: Values) -> RenderableType:
    """The document of a workload for a terminal."""
    cache = say(_CACHE, document).removeprefix(", ")
    values = {**document, "cache": cache, "of_family": document["family"] or "captured module"}
    views: list[RenderableType] = [heading(document), pairs(filled(_LINES, values))]
    if document["published"]:
        views += ["", checks_table(document["published"], "source")]
    if "operators" in document:
        views += ["", layers_table(document["operators"])]
    return Group(*views)


def checks_table(rows: Rows, name: str) -> RenderableType:
    """Rows of `FigureCheck.to_dict`.

    Args:
        rows: The checks.
        name: What names each: "workload", or the "source" where it was published.
    """
    shown = [{**row, "verdict": "ok" if row["agrees"] else "DIFFERS"} for row in rows]
    styles = ["" if row["agrees"] else "bold red" for row in rows]
    columns = (
        f"~{name} | figure=quantity | >published=published:number | >ours=ours:number | >differs="
        "difference_fraction | verdict"
    )
    return Listing.of(columns, shown, styles=styles, gap=2)


def layers_table(rows: Rows) -> RenderableType:
    """Rows of `layer_groups`."""
    shown = [{**row, "path": row["path"] or "(model)"} for row in rows]
    columns = (
        "~layers=path | kind | >operators=operator_count | >FLOP=flop:number | "
        ">bytes=bytes:number | >weights=weight_bytes:number"
    )
    return Listing.of(columns, shown, gap=2)

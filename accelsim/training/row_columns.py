"""What each row of a forward and a backward pass adds to its block: seconds, joules, bytes and
parameters.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from accelsim.cost.contraction import visible_pairs
from accelsim.cost.table import CostTable
from accelsim.dtype import DTYPE_BYTES
from accelsim.estimation.run import ResolvedRun
from accelsim.workloads.adapters import is_adapter
from accelsim.workloads.graph import BoolArray, FloatArray, OperatorGraph, concatenate, is_kind
from accelsim.workloads.operator import (
    COLLECTIVE_KINDS,
    CONTRACTION_KINDS,
    DIMENSIONS,
    PRODUCT_KINDS,
    OperatorKind,
    Phase,
)
from accelsim.workloads.recomputation import selectively
from accelsim.workloads.sharding import ParallelGroup

_K = OperatorKind
_LOOKUPS = (int(_K.EMBEDDING), int(_K.EMBEDDING_BAG))
#: Group of a collective -> word in the names of fields.
_GROUPS = {
    ParallelGroup.TENSOR: "tensor",
    ParallelGroup.EXPERT_TENSOR: "expert",
    ParallelGroup.EXPERT: "expert",
    ParallelGroup.CONTEXT: "context",
}


def row_columns(
    graphs: Sequence[OperatorGraph], tables: Sequence[CostTable], runs: Sequence[ResolvedRun]
) -> dict[str, FloatArray]:
    """Columns of the rows to sum over blocks, by field, shape (n,) of all runs' rows.

    Args:
        graphs: Rows of each run.
        tables: What they cost.
        runs: The runs.
    """
    graph, run = concatenate(graphs), runs[0]
    run_of_row = np.repeat(np.arange(len(runs)), [len(rows) for rows in graphs])
    adapts = np.array([one_run.lora_rank is not None for one_run in runs])[run_of_row]
    time_s = np.concatenate([table.time_s for table in tables])
    dispatch_s = np.concatenate([table.dispatch_s for table in tables])
    energy_j = np.concatenate([table.energy_j for table in tables])
    is_forward = graph.phase == int(Phase.FORWARD)
    joins = is_kind(graph.kind, COLLECTIVE_KINDS)
    kept_bytes, again = selectively(graph, run.selective, run_of_row)
    flop = _needed_flop(graph) * (is_kind(graph.kind, CONTRACTION_KINDS) & is_forward)
    columns = {
        "weight_gradient_s": time_s * _ends(graph, (".grad_weight", ".grad_bias")),
        "selective_compute_s": time_s * again,
        "selective_issue_s": dispatch_s * again,
        "selective_energy_j": energy_j * again,
        "saved_bytes": graph.saved_bytes,
        "selective_saved_bytes": kept_bytes,
        "flop": flop,
        "selective_flop": flop * again,
    }
    for direction, rows in (("forward", is_forward), ("backward", ~is_forward)):
        columns[f"compute_{direction}_s"] = time_s * (rows & ~joins)
        columns[f"issue_{direction}_s"] = dispatch_s * rows
        columns[f"energy_{direction}_j"] = energy_j * rows
        for word in ("tensor", "context", "expert"):
            columns[f"{word}_{direction}_s"] = time_s * (rows & joins & _is_of(graph, word))
    return columns | _parameters(graph, is_forward, adapts, run)


def _needed_flop(graph: OperatorGraph) -> FloatArray:
    """Arithmetic of the model, of attention that of the pairs that its mask leaves, shape (n,).

    Megatron Core and MaxText (from 2025-07) count so; a full rectangle has twice as many under a
    causal mask, which kernels leave out.
    """
    names = ("q_len", "kv_len", "causal", "window")
    places = [DIMENSIONS[_K.ATTENTION].index(name) for name in names]
    q_len, kv_len, causal, window = (graph.dims[:, at].astype(np.float64) for at in places)
    share = visible_pairs(q_len, kv_len, causal, window) / np.maximum(q_len * kv_len, 1.0)
    needed: FloatArray = graph.flop * np.where(graph.kind == int(_K.ATTENTION), share, 1.0)
    return needed


def _is_of(graph: OperatorGraph, word: str) -> BoolArray:
    groups = [int(group) for group, label in _GROUPS.items() if label == word]
    is_of_group: BoolArray = np.isin(graph.dims[:, 2], groups)
    return is_of_group


def _ends(graph: OperatorGraph, suffixes: tuple[str, ...]) -> BoolArray:
    return np.array([name.endswith(suffixes) for name in graph.name], dtype=bool)


def _parameters(
    graph: OperatorGraph, is_forward: BoolArray, adapts: BoolArray, run: ResolvedRun
) -> dict[str, FloatArray]:
    """Parameters of forward rows and their bytes: stored weights, whole tables, all experts.

    Estimate: a row's parameters are its weight bytes over the bytes of one weight.
    """
    adapters = is_adapter(graph) if adapts.any() else adapts
    width = _weight_widths(graph, run)
    count = graph.weight_bytes / np.where(adapters, run.precision.activation.bytes, width)
    lookups = np.isin(graph.kind, _LOOKUPS)
    sizes = graph.dims.astype(np.float64)
    count = np.where(lookups, sizes[:, 1] * sizes[:, 2], count)
    grouped = graph.kind == int(_K.GROUPED_GEMM)
    count = np.where(grouped, sizes[:, 0] * sizes[:, 2] * sizes[:, 3], count) * is_forward
    bags = graph.kind == int(_K.EMBEDDING_BAG)
    is_frozen = adapts & ~adapters
    trained = count * ~is_frozen
    held_bytes = np.where(is_frozen, width, run.precision.trained.held_bytes) * count
    return {
        "weight_bytes": held_bytes * ~(grouped | bags),
        "expert_weight_bytes": held_bytes * grouped,
        "parameters": count,
        "expert_parameters": count * grouped,
        "table_parameters": count * bags,
        "trained_parameters": trained * ~(grouped | bags),
        "trained_experts": trained * grouped,
        "tensors": 1.0 * np.where(is_forward, count > 0, _ends(graph, (".grad_bias",))),
        "pooled_bytes": graph.write_bytes * (bags & is_forward),
    }


def _weight_widths(graph: OperatorGraph, run: ResolvedRun) -> FloatArray:
    """Bytes of one stored weight of each row, shape (n,)."""
    policy = run.precision
    if run.workload.captured is not None:
        is_narrow = graph.dtype == policy.compute
        return np.where(is_narrow, policy.weight.bytes, DTYPE_BYTES[graph.dtype])
    products = is_kind(graph.kind, PRODUCT_KINDS)
    if not policy.kept:
        return np.where(products, policy.weight.bytes, policy.unquantised.bytes)
    widths = (
        policy.stored_bytes(path, is_product=is_product)
        for path, is_product in zip(graph.path, products.tolist(), strict=True)
    )
    return np.fromiter(widths, dtype=np.float64, count=len(graph))

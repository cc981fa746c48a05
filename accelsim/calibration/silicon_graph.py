"""Operator graphs of measured kernels: GEMM, attention and MoE layers of `accelsim.calibration.silicon`.

A GEMM or attention row is one operator. A MoE row is the expert layer on one device: the rows of tokens routed to its
experts go through a grouped GEMM (gate and up together), the activation, and a second grouped GEMM. Under tensor parallelism
a device has a slice of every expert's width; under expert parallelism whole experts and their share of the tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accelsim.calibration.silicon import FORMATS, SiliconRows, format_names
from accelsim.calibration.validation.columns import attention_graph, gemm_graph, graph_of_columns, vector_graph
from accelsim.cost.table import CostTable
from accelsim.errors import InvalidValueError
from accelsim.workloads.dtype import DTYPE_BYTES, Dtype
from accelsim.workloads.graph import FloatArray, OperatorGraph, concatenate
from accelsim.workloads.operator import OperatorKind

__all__ = ["KernelGraph", "kernel_graphs"]


@dataclass(frozen=True, slots=True, eq=False)
class KernelGraph:
    """Rows of one number format as a graph.

    Attributes:
        rows: The measured rows, n of them.
        format_name: Name of the format, with the cache's where it differs.
        graph: Operators; `stages` of n rows each, one after the other.
        stages: Operators a measured row stands for.
    """

    rows: SiliconRows
    format_name: str
    graph: OperatorGraph
    stages: int

    def sum_stages(self, values: FloatArray) -> FloatArray:
        """Add the operators of each measured row, shape (n,)."""
        total: FloatArray = values.reshape(self.stages, len(self.rows)).sum(axis=0)
        return total

    def log_sigma(self, costs: CostTable) -> FloatArray:
        """Standard deviation of ln(true / predicted) of each measured row: errors of its operators go together."""
        return self.sum_stages(costs.time_s * costs.log_sigma) / self.sum_stages(costs.time_s)


def kernel_graphs(rows: SiliconRows) -> list[KernelGraph]:
    """One graph per number format of a table.

    Args:
        rows: Rows of one kind.

    Raises:
        InvalidValueError: If a format is not known.
    """
    words = format_names(rows)
    graphs = []
    for label in np.unique(words).tolist():
        part = rows.take(words == label)
        graph, stages = _BUILD[rows.kind](part)
        graphs.append(KernelGraph(part, label, graph, stages))
    return graphs


def _formats(rows: SiliconRows) -> list[tuple[Dtype, Dtype]]:
    """(compute, storage) of each format column of rows that share them."""
    found = []
    for name, column in rows.formats.items():
        word = str(column[0])
        if word not in FORMATS:
            raise InvalidValueError(name, word, "one of " + ", ".join(FORMATS))
        found.append((FORMATS[word].compute, FORMATS[word].weight))
    return found


def _gemm(rows: SiliconRows) -> tuple[OperatorGraph, int]:
    m, n, k = (rows.sizes[name] for name in ("m", "n", "k"))
    ((compute, weight),) = _formats(rows)
    plain = np.zeros(len(rows), dtype=np.bool_)
    return gemm_graph(np.ones(len(rows)), m, n, k, compute, batched=plain, weight=weight, output=Dtype.BF16), 1


def _attention(rows: SiliconRows) -> tuple[OperatorGraph, int]:
    sizes = rows.sizes
    (compute, _), (_, cache) = _formats(rows)
    graph = attention_graph(
        sizes["batch_size"],
        (sizes["num_heads"], sizes["num_key_value_heads"]),
        (sizes["isl"], sizes["isl"] + sizes["step"]),
        sizes["head_dim"],
        sizes["window_size"],
        compute,
        cache,
    )
    return graph, 1


def _moe(rows: SiliconRows) -> tuple[OperatorGraph, int]:
    sizes = rows.sizes
    ((compute, weight),) = _formats(rows)
    local = np.maximum(sizes["num_experts"] / sizes["moe_ep_size"], 1.0)
    routed = np.maximum(np.ceil(sizes["num_tokens"] * sizes["topk"] / sizes["moe_ep_size"]), 1.0)
    active = np.ceil(
        active_experts(sizes["num_tokens"], sizes["topk"], sizes["num_experts"], local, routed, balanced(rows))
    )
    inter = np.maximum(sizes["inter_size"] / sizes["moe_tp_size"], 1.0)
    gates = np.where(np.char.find(rows.words["kernel_source"].astype(str), "nongated") >= 0, 1.0, 2.0)
    hidden = sizes["hidden_size"]
    up = _grouped(active, routed, gates * inter, hidden, compute, weight)
    activation = vector_graph(np.where(gates == 2, "mul", "relu"), routed, inter, Dtype.BF16)
    down = _grouped(active, routed, hidden, inter, compute, weight)
    return concatenate([up, activation, down]), 3


def balanced(rows: SiliconRows) -> NDArray[np.bool_]:
    """Rows whose tokens were spread evenly over the experts."""
    even: NDArray[np.bool_] = rows.words["distribution"] == "balanced"
    return even


def active_experts(
    tokens: FloatArray,
    top_k: FloatArray,
    experts: FloatArray,
    local: FloatArray,
    routed: FloatArray,
    is_balanced: NDArray[np.bool_],
) -> FloatArray:
    """Experts of one device that get any token, shape (n,).

    Even routing reaches as many as there are routed rows. Random routing misses an expert with probability
    (1 - top_k / experts)^tokens; a skewed one misses more.

    Args:
        tokens: Tokens of the layer.
        top_k: Experts per token.
        experts: Experts of the layer.
        local: Experts of the device.
        routed: Rows routed to the device.
        is_balanced: Whether routing is even.
    """
    share = np.clip(top_k / experts, 0.0, 1.0)
    reached = local * (1.0 - (1.0 - share) ** tokens)
    found: FloatArray = np.maximum(np.minimum(np.where(is_balanced, routed, reached), local), 1.0)
    return found


def _grouped(
    groups: FloatArray, m: FloatArray, n: FloatArray, k: FloatArray, compute: Dtype, weight: Dtype
) -> OperatorGraph:
    return graph_of_columns(
        int(OperatorKind.GROUPED_GEMM),
        (groups, m, n, k),
        compute,
        flop=2.0 * m * n * k,
        read=DTYPE_BYTES[compute] * m * k,
        weight=DTYPE_BYTES[weight] * groups * n * k,
        write=Dtype.BF16.bytes * m * n,
        count=len(m),
    )


_BUILD = {"gemm": _gemm, "context_attention": _attention, "generation_attention": _attention, "moe": _moe}

"""Formulas of ATen operators that indices lead: rows and elements looked up, added and written.

Registered in `aten.FORMULAS`. An index with a place for each element runs element by element, along
the last axis faster than across; one that is repeated over whole rows runs as rows do (ATen
TensorAdvancedIndexing.cpp, can_use_expanded_index_path).
"""

from __future__ import annotations

from dataclasses import replace

from accelsim.workloads.capture.torch.aten import Call, Kernel, Operand, formula, lies_together
from accelsim.workloads.operator import SORTED_WIDTH, OperatorKind

_K = OperatorKind
#: Operators whose index has a place for each element.
_OF_ELEMENTS = frozenset({"scatter", "scatter_add", "scatter_reduce"})
#: How the elements of an index lie: as repeated rows, across the last axis.
_REPEATED_ROWS = "rows"
_ACROSS = "across"


def _axis_suffix(call: Call, index: Operand) -> str:
    """Whether elements are indexed along another axis than the last."""
    rank = max(len(index.shape), 1)
    return _ACROSS if call.arguments["dim"] % rank != rank - 1 else ""


def _names_rows(call: Call, index: Operand, table: Operand, values: Operand) -> bool:
    """Whether an index names rows: along the first axis, repeated over the others.

    30,000 rows of 64 floats added to 2,000 take 0.34 ms so and 2.07 ms of an index of their own
    (EPYC 9005).
    """
    rank = len(index.shape)
    if rank < 2 or call.arguments["dim"] % rank or not table.scaled or index.stride[0] != 1:
        return False
    is_repeated = all(
        step == 0 or size == 1 for step, size in zip(index.stride[1:], index.shape[1:], strict=True)
    )
    is_alike = values.shape[1:] == index.shape[1:] == table.shape[1:]
    return is_repeated and is_alike and lies_together(table) and lies_together(values)


def _lookup(
    table: Operand, indices: tuple[Operand, ...], output: Operand, width: int, suffix: str = ""
) -> list[Kernel]:
    lookups, width = output.elements // max(width, 1), max(width, 1)
    dims, moved = (lookups, width, table.elements // width), float(output.elements)
    return [Kernel(_K.EMBEDDING, dims, indices, (output,), suffix, gathered=moved, waits=(table,))]


@formula("embedding")
def embedding(call: Call) -> list[Kernel]:
    """One row of the table per index: the rows looked up are read, not the table."""
    table, indices = call.inputs
    return _lookup(table, (indices,), call.outputs[0], table.shape[1])


@formula("index index_select gather take _unsafe_index take_along_dim")
def gather(call: Call) -> list[Kernel]:
    """One element or row per index; what indices of elements gather is named after how they lie."""
    table, *indices = call.inputs
    output = call.outputs[0]
    count, suffix = max((x.elements for x in indices), default=1), ""
    if call.name == "gather" and _names_rows(call, indices[0], table, output):
        count, suffix = output.shape[0], _REPEATED_ROWS
    elif call.name == "gather":
        suffix = _axis_suffix(call, indices[0])
    width = max(output.elements // max(count, 1), 1)
    return _lookup(table, tuple(indices), output, width, suffix)


@formula("grid_sampler_2d")
def grid_sample(call: Call) -> list[Kernel]:
    """Four pixels looked up for each place and channel, and mixed.

    Estimate: four products and three sums; the weights, which channels share, are not counted.
    """
    (image, grid), count = call.inputs, call.outputs[0].elements
    lookup = Kernel(_K.EMBEDDING, (4 * count, 1, image.elements), (grid,), call.outputs)
    return [replace(lookup, flop=7.0 * count, gathered=4.0 * count, waits=(image,))]


@formula("_embedding_bag _embedding_bag_forward_only")
def embedding_bag(call: Call) -> list[Kernel]:
    """Rows looked up and summed per bag: one FLOP per element read."""
    table, indices = call.inputs[:2]
    lookups, width, bags = indices.elements, table.shape[1], call.outputs[0].shape[0]
    dims, moved = (lookups, width, table.shape[0], bags), float(lookups * width)
    reads, writes = call.inputs[1:], call.outputs[:1]
    return [Kernel(_K.EMBEDDING_BAG, dims, reads, writes, gathered=moved, waits=(table,))]


@formula("embedding_dense_backward _embedding_bag_dense_backward _embedding_bag_backward")
def embedding_backward(call: Call) -> list[Kernel]:
    """Add one row per lookup to the table's gradient, zeroed first; a sparse gradient is those rows
    alone.
    """
    gradient, indices, result = call.inputs[0], call.inputs[1], call.outputs[0]
    width = result.shape[1]
    table_rows = call.arguments["num_weights"]
    moved = float(indices.elements * width)
    writes = call.outputs if result.shape[0] == table_rows else ()
    dims, reads = (indices.elements, width, table_rows), (gradient, indices)
    return [Kernel(_K.SCATTER, dims, reads, writes, "", moved, moved, moved, call.outputs)]


def _order_of_elements(call: Call, values: int) -> str:
    """How the elements lie that an index of elements leads; empty for an index of rows."""
    name = call.name.rstrip("_")
    if name not in _OF_ELEMENTS:
        return ""
    target, index, *added = call.inputs
    is_sum = bool(added) and name != "scatter"
    is_in_rows = is_sum and _names_rows(call, index, target, added[0])
    is_sorted = is_in_rows and values >= SORTED_WIDTH * index.shape[0]
    return _REPEATED_ROWS if is_sorted else _axis_suffix(call, index)


@formula(
    """
    index_put _index_put_impl_ _unsafe_index_put index_add index_copy scatter scatter_add
    scatter_reduce masked_scatter index_fill put
    """
)
def scatter(call: Call) -> list[Kernel]:
    """Values written where the indices say; out of place, the whole tensor is copied first.

    Estimate: rows that are sorted first are each read and written once, however many are added to
    them.
    """
    target, *others = call.inputs
    values = max((x.elements for x in others), default=1)
    indices = max((x.elements for x in others if not x.scaled), default=values)
    suffix = _order_of_elements(call, values)
    if suffix == _REPEATED_ROWS:
        indices = others[0].shape[0]
    width = max(values // max(indices, 1), 1)
    dims = (indices, width, target.elements // width)
    is_wide_sum = call.name.rstrip("_") == "index_add" and width >= SORTED_WIDTH
    is_sorted = suffix == _REPEATED_ROWS or is_wide_sum
    moved = float(min(values, target.elements) if is_sorted else values)
    reads: tuple[Operand, ...] = (target, *others)
    writes, waits = call.outputs, call.outputs[:0]
    if call.name.endswith("_"):  # the tensor is there
        reads, writes, waits = tuple(others), waits, writes
    return [Kernel(_K.SCATTER, dims, reads, writes, suffix, float(values), moved, moved, waits)]

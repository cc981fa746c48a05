"""Which rows of a pass stand for which blocks of a model: what stands before its layers, each
layer, and what follows. Equal blocks have their rows once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from accelsim.estimation.passes import TrainingStep
from accelsim.estimation.run import ResolvedRun
from accelsim.frozen import frozen
from accelsim.workloads.graph import FloatArray, IntArray, OperatorGraph
from accelsim.workloads.recomputation import layer_of

#: Columns in which the rows of two blocks are the same where the blocks are.
_CONTENT = ("kind", "dims", "dtype", "phase", "read_bytes", "write_bytes", "saved_bytes")


@frozen(eq=False)
class Blocks:
    """Which rows stand for which blocks.

    Attributes:
        distinct_rows: Rows of one block of each sort, shape (k,).
        distinct_block: The sort of each, shape (k,).
        distinct_count: Sorts of blocks.
        output_bytes: What a block of each sort hands on: what its last operator writes, before a
            compiler joins it with those of the next block; shape (distinct_count,).
        alike: Sort of each block, shape (blocks,).
        layer_count: Layers among the blocks.
    """

    distinct_rows: IntArray
    distinct_block: IntArray
    distinct_count: int
    output_bytes: FloatArray
    alike: IntArray
    layer_count: int

    @classmethod
    def of(cls, step: TrainingStep, passes: OperatorGraph, run: ResolvedRun) -> Blocks:
        """Blocks of the rows of a forward and a backward pass."""
        keys = _keys(step.forward.path, is_split=_is_split(run))
        block = np.array([keys[path] for path in passes.path], dtype=np.int64)
        count = max(keys.values()) + 1
        output, plain = np.zeros(count), step.forward
        numbers = np.array([keys[path] for path in plain.path], dtype=np.int64)
        output[numbers] = plain.write_bytes  # the last row's stays
        order = np.argsort(block, kind="stable")
        starts = np.searchsorted(block[order], np.arange(count + 1))
        sorts: dict[bytes, int] = {}
        alike: list[int] = []
        rows: list[IntArray] = []
        sort_of_rows: list[IntArray] = []
        first_blocks: list[int] = []
        for number in range(count):
            rows_of_block = order[starts[number] : starts[number + 1]]
            key = b"".join(getattr(passes, name)[rows_of_block].tobytes() for name in _CONTENT)
            sort = sorts.setdefault(key, len(sorts))
            if sort == len(rows):
                rows.append(rows_of_block)
                sort_of_rows.append(np.full(len(rows_of_block), sort))
                first_blocks.append(number)
            alike.append(sort)
        copies = np.ones(count, dtype=np.int64)
        for path, number in keys.items():
            copies[number] = 1 + step.lowered.folded.get(layer_of(path)[0], 0)
        layers = int(copies.sum()) - 2 if _is_split(run) else count
        picked = (np.concatenate(rows), np.concatenate(sort_of_rows))
        return cls(*picked, len(sorts), output[first_blocks], np.repeat(alike, copies), layers)


def numbered_blocks(blocks: Sequence[Blocks]) -> tuple[IntArray, IntArray]:
    """Sorts of the blocks of several runs, those of one run after those of the run before.

    Args:
        blocks: Blocks of each run.

    Returns:
        The sort of each row, and of each block, shape (runs, blocks).
    """
    starts = np.cumsum([0, *(run.distinct_count for run in blocks)])[:-1]
    pairs = list(zip(blocks, starts, strict=True))
    rows = np.concatenate([run.distinct_block + start for run, start in pairs])
    return rows, np.stack([run.alike + start for run, start in pairs])


def _is_split(run: ResolvedRun) -> bool:
    return run.workload.family is not None and run.workload.family.shards


@lru_cache(maxsize=64)
def _keys(paths: tuple[str, ...], *, is_split: bool) -> dict[str, int]:
    """Block of each path: of a model of layers the rows before, each layer, and the rows after; of
    others what shares the first number in its path.
    """
    block_of_path: dict[str, int] = {}
    blocks: dict[str, int] = {"": 0} if is_split else {}
    layers = [layer_of(path) for path in paths]
    last = max((index for index, layer in enumerate(layers) if layer[1]), default=0)
    for index, (path, (prefix, is_layer)) in enumerate(zip(paths, layers, strict=True)):
        if is_split and not is_layer:
            block_of_path.setdefault(path, 0 if index < last else -1)
        else:
            block_of_path.setdefault(path, blocks.setdefault(prefix, len(blocks)))
    return {path: len(blocks) if block < 0 else block for path, block in block_of_path.items()}

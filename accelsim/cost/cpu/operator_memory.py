"""What each operator of a pass allocates: its output and the temporaries of the framework and its
libraries.

As torch 2.13 and oneDNN 3.12 were traced to, operator by operator, on the shapes of the operator
suite. A convolution copies image, filter and result into layouts of 16 channels; a pointwise one in
16 bits adds up in 32 bits, one image per thread. A mean in 16 bits converts its input; a norm by
the root of the mean square runs operator by operator. The optimizer's update takes two temporaries
of each parameter, one of which lives until the next parameter's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from accelsim.cost.cpu.convolutions import runs_by_group
from accelsim.cost.cpu.recurrent_memory import HELD, SAVED, Script, lstm_script
from accelsim.workloads.dtype import DTYPE_BYTES
from accelsim.workloads.graph import FloatArray, OperatorGraph
from accelsim.workloads.operator import CONV_KINDS, IN_PLACE, OperatorKind, Phase

__all__ = ["operator_scripts", "parameter_bytes"]

_K = OperatorKind
_Row = Callable[[int], Script]
_NORMS: Final = (_K.LAYER_NORM, _K.BATCH_NORM, _K.GROUP_NORM)
#: Channels of a block in oneDNN's layouts; images of fewer are read as they are.
_BLOCK: Final = 16.0
#: Channels up to which gradients of fp32 weights read an image as it is; more, less than a block,
#: fill halves of blocks.
_FEWEST_CHANNELS: Final = 3.0
_HALF_BLOCK: Final = 8.0
#: What gradients of 16-bit weights take beside sums and an image's gradient, where the image is
#: read as it is.
_FEW_SCRATCH: Final = 8_580.0
#: What each thread of a transposed convolution takes beside an image, and all together.
_THREAD_SCRATCH, _SHARED_SCRATCH = 24_600.0, 14_464.0
#: Groups' results that are told apart; more are taken together.
_MOST_PARTS: Final = 8
#: Upsampled images of at most this height plus width are interpolated channels last (ATen
#: UpSampleKernel.cpp).
_SMALL_IMAGE: Final = 128.0


def operator_scripts(
    graph: OperatorGraph, names: NDArray[np.str_], threads: int = 1
) -> list[Script]:
    """What each row allocates and frees.

    Args:
        graph: A pass, n rows.
        names: Kernel of each row, shape (n,).
        threads: Threads of the framework, each with scratch of its own.
    """
    written = zip(graph.write_bytes.tolist(), graph.name, strict=True)
    scripts: list[Script] = [
        [] if IN_PLACE in name else [(0, float(size))] for size, name in written
    ]
    is_training = bool((graph.phase == int(Phase.BACKWARD)).any())
    for kind, rows in graph.rows_by_kind():
        found = _kind_scripts(graph, names, kind, rows, threads, is_training=is_training)
        if found is not None:
            for row in rows.tolist():
                scripts[row] = found(row)
    for row, name in enumerate(names.tolist()):
        if name == "native_dropout":  # the mask, in the input's format, stays for the backward pass
            size = float(graph.dims[row, 0]) * float(DTYPE_BYTES[graph.dtype[row]])
            scripts[row] = [(SAVED, size)] + ([] if IN_PLACE in graph.name[row] else [(0, size)])
        elif name.startswith("upsample") and _side(graph, row) <= _SMALL_IMAGE:
            size = float(graph.write_bytes[row])
            scripts[row] = [
                (0, size),
                (1, float(graph.read_bytes[row])),
                (2, size),
                (2, 0.0),
                (1, 0.0),
            ]
    for row in np.flatnonzero(graph.kind == int(_K.SOFTMAX)).tolist():
        if row and graph.name[row - 1].startswith(
            f"{graph.name[row]}.clone"
        ):  # made once the output is there
            size = float(graph.write_bytes[row - 1])
            scripts[row - 1], scripts[row] = [], [*scripts[row], (1, size), (1, 0.0)]
    for row in np.flatnonzero(graph.kind == int(_K.OPTIMIZER)).tolist():
        scripts[row] = _update(graph, row, parameter_bytes(graph, scripts))
    return scripts


def _kind_scripts(
    graph: OperatorGraph,
    names: NDArray[np.str_],
    kind: OperatorKind,
    rows: NDArray[np.int64],
    threads: int,
    *,
    is_training: bool,
) -> _Row | None:
    """The scripts of one kind's rows, by row; None where a row's output is all it allocates."""
    if kind in CONV_KINDS:
        return dict(
            zip(rows.tolist(), _convolutions(graph, kind, rows, names[rows], threads), strict=True)
        ).__getitem__

    def output(row: int) -> float:
        return float(graph.write_bytes[row])

    by_kind: dict[OperatorKind, _Row] = {
        _K.LSTM: lambda row: _lstm(graph, row, str(names[row])),
        _K.POOLING: lambda row: _pooling(graph, row, str(names[row]), is_training=is_training),
        # the framework's own loop: all steps' input products, no weights in blocks
        _K.GRU: lambda row: [(1, 3.0 * output(row)), (0, output(row)), (1, 0.0)],
        _K.SCATTER: lambda row: _scatter(graph, row, str(names[row])),
        _K.REDUCTION: lambda row: _reduction(graph, row, str(names[row])),
    }
    if not is_training:
        by_kind[_K.RMS_NORM] = lambda row: _rms_norm(output(row), is_narrow=_is_narrow(graph, row))
    if kind in _NORMS:  # statistics, or gradients of the parameters, lie in blocks of their own
        is_kept = is_training or kind == _K.BATCH_NORM
        return lambda row: _norm(
            _elements_bytes(graph, row), output(row), str(names[row]), is_kept=is_kept
        )
    return by_kind.get(kind)


def _is_narrow(graph: OperatorGraph, row: int) -> bool:
    return bool(DTYPE_BYTES[graph.dtype[row]] < 4)


def _reduction(graph: OperatorGraph, row: int, name: str) -> Script:
    """A mean in 16 bits converts its input first (ATen ReduceOps.cpp)."""
    output: Script = [(0, float(graph.write_bytes[row]))]
    is_converted = name.startswith("mean") and _is_narrow(graph, row)
    return [*output, (1, 2.0 * float(graph.read_bytes[row])), (1, 0.0)] if is_converted else output


def _elements_bytes(graph: OperatorGraph, row: int) -> float:
    return float(graph.dims[row, 0] * graph.dims[row, 1] * DTYPE_BYTES[graph.dtype[row]])


def _table_bytes(graph: OperatorGraph, row: int) -> float:
    return float(graph.dims[row, 1] * graph.dims[row, 2] * DTYPE_BYTES[graph.dtype[row]])


def _with_rest(main: float, written: float, name: str) -> Script:
    """A row's main output, and what else it writes in a block of its own."""
    if not 0.0 < main <= written:
        return [(0, written)]
    if name == "batch_norm_backward":
        return [(0, main), (1, main), (1, 0.0), (SAVED, written - main)]
    if name == "embedding_backward":
        return [(1, written - main), (0, main), (1, 0.0)]
    return [(0, main), (SAVED, written - main)]


def _norm(main: float, written: float, name: str, *, is_kept: bool) -> Script:
    """Mean and deviation of each row lie in blocks of their own, which training alone keeps."""
    if is_kept or not 0.0 < main < written:
        return _with_rest(main, written, name)
    half = (written - main) / 2.0
    return [(0, main), (1, half), (2, half), (1, 0.0), (2, 0.0)]


def _scatter(graph: OperatorGraph, row: int, name: str) -> Script:
    """A table's gradient, and what finds its rows; added up in a forward pass, the table alone.

    Rows that are sorted by their index take four lists of places on the way (ATen
    ScatterGatherKernel.cpp).
    """
    places = 8.0 * float(graph.dims[row, 0]) * (name == "index_add")
    sorting: Script = (
        [(slot, size) for size in (places, 0.0) for slot in range(1, 5)] if places else []
    )
    if IN_PLACE in graph.name[row]:
        return sorting
    main, written = _table_bytes(graph, row), float(graph.write_bytes[row])
    if graph.phase[row] != int(Phase.BACKWARD) and 0.0 < main <= written:
        return [(0, main), *sorting]
    return _with_rest(main, written, name)


def _rms_norm(size: float, *, is_narrow: bool) -> Script:
    if not is_narrow:  # squares, their mean; the input scaled, and scaled by the weights
        return [(1, size), (1, 0.0), (1, size), (0, size), (1, 0.0)]
    wide = 2.0 * size
    return [
        (1, wide),
        (2, wide),
        (2, 0.0),
        (2, wide),
        (3, wide),
        (2, 0.0),
        (1, 0.0),
        (0, size),
        (3, 0.0),
    ]


def _pooling(graph: OperatorGraph, row: int, name: str, *, is_training: bool) -> Script:
    """Maxima with their places, 64-bit, which are needed again in training alone."""
    size, width = float(graph.write_bytes[row]), float(DTYPE_BYTES[graph.dtype[row]])
    if not name.startswith("max_pool") or name.endswith("backward"):
        return [(0, size)]
    output = size * width / (width + 8.0)
    return (
        [(0, output), (SAVED, size - output)]
        if is_training
        else [(0, output), (1, size - output), (1, 0.0)]
    )


def _lstm(graph: OperatorGraph, row: int, name: str) -> Script:
    index, width = np.array([row]), float(DTYPE_BYTES[graph.dtype[row]])
    batch, steps, inputs, hidden, directions = (
        float(graph.dimension(of, index, _K.LSTM)[0])
        for of in ("batch", "steps", "input_size", "hidden_size", "directions")
    )
    modes = {"is_training": name.endswith("train"), "is_backward": name.endswith("backward")}
    return lstm_script(batch, steps, inputs, hidden, width, int(directions), **modes)


def _side(graph: OperatorGraph, row: int) -> float:
    """Height plus width of an upsampled image, from the last convolution that wrote as much;
    infinite where none did.
    """
    convolutions = np.flatnonzero(np.isin(graph.kind[:row], [int(kind) for kind in CONV_KINDS]))
    same = convolutions[graph.write_bytes[convolutions] == graph.read_bytes[row]]
    if not len(same):
        return float("inf")
    source = same[-1:]
    kind = OperatorKind(int(graph.kind[source[0]]))
    sides = graph.dimension("out_h", source, kind) + graph.dimension("out_w", source, kind)
    factor = np.sqrt(graph.write_bytes[row] / graph.read_bytes[row])
    return float(sides[0] * factor)


def parameter_bytes(graph: OperatorGraph, scripts: Sequence[Script]) -> list[float]:
    """Bytes of each parameter, in the model's order: gradients that the backward pass leaves, and
    equal parts of the rest.

    Args:
        graph: A training step, n rows.
        scripts: What each row allocates, n scripts.
    """
    optimizer = np.flatnonzero(graph.kind == int(_K.OPTIMIZER))
    read = graph.dependency[
        : graph.dependency_offset[optimizer[0]]
    ]  # the update itself waits for the last of them
    unread = np.setdiff1d(np.arange(len(graph)), read)
    sizes: list[float] = []
    for row in np.flatnonzero(graph.phase == int(Phase.BACKWARD)).tolist():
        kept = (HELD, 0) if row in unread else (HELD,)
        sizes += [size for slot, size in scripts[row] if slot in kept and size]
    sizes.reverse()
    count, tensors = (
        float(graph.dimension(name, optimizer, _K.OPTIMIZER).sum())
        for name in ("parameters", "tensors")
    )
    left = count * float(DTYPE_BYTES[graph.dtype[optimizer[0]]]) - sum(sizes)
    others = int(max(1.0, tensors - len(sizes)))
    return sizes + [left / others] * others if left > 0 else sizes


def _update(graph: OperatorGraph, row: int, sizes: list[float]) -> Script:
    """In place; with a second moment its root, and the root corrected, which stays until the next
    parameter's is made.
    """
    states = float(graph.dimension("states", np.array([row]), _K.OPTIMIZER)[0])
    script: Script = []
    for place, size in enumerate(sizes if states > 1 else ()):
        script += [(1, size), (2 + place % 2, size), (1, 0.0), (3 - place % 2, 0.0)]
    return [*script, (2, 0.0), (3, 0.0)]


def _whole(channels: FloatArray) -> FloatArray:
    blocks: FloatArray = np.ceil(channels / _BLOCK) * _BLOCK
    return blocks


def _convolutions(
    graph: OperatorGraph,
    kind: OperatorKind,
    rows: NDArray[np.int64],
    names: NDArray[np.str_],
    threads: int,
) -> list[Script]:
    def size(name: str) -> FloatArray:
        return graph.dimension(name, rows, kind)

    width = DTYPE_BYTES[graph.dtype[rows]].astype(np.float64)
    batch, groups = np.maximum(size("batch"), 1.0), np.maximum(size("groups"), 1.0)
    depthwise = (groups > 1) & (groups >= size("channels_in"))
    blocks = depthwise | (groups == 1)
    plain = kind == _K.CONV_TRANSPOSE  # images channels last, not in blocks
    inside, outside = (
        np.where(blocks & (not plain), _whole(c), c)
        for c in (size("channels_in"), size("channels_out"))
    )
    gradient = (kind == _K.CONV_BACKWARD_WEIGHT) & (groups == 1) & (size("channels_in") < _BLOCK)
    as_is = np.where((kind == _K.CONV) | (width < 4), _BLOCK - 1.0, _FEWEST_CHANNELS)
    few = (size("channels_in") <= as_is) & (groups == 1) & (gradient | (kind == _K.CONV))
    halves = gradient & ~few
    inside, outside = (
        np.where(halves, np.ceil(size(f"channels_{side}") / _HALF_BLOCK) * _HALF_BLOCK, filled)
        for side, filled in (("in", inside), ("out", outside))
    )
    inside = np.where(few & gradient, size("channels_in"), inside)
    by_image = (
        gradient & (width < 4) & (size("channels_out") % _BLOCK > 0)
    )  # unfolded, a small block at a time
    pixels, image = (size(f"{p}_d") * size(f"{p}_h") * size(f"{p}_w") for p in ("out", "in"))
    taps = size("kernel_d") * size("kernel_h") * size("kernel_w")
    filters = (
        outside
        * np.where(few, size("channels_in"), np.where(depthwise, 1.0, inside / groups))
        * taps
    )
    if plain:
        block = np.clip(_whole(outside), _BLOCK, 4 * _BLOCK)
        block = np.where(block == 3 * _BLOCK, 4 * _BLOCK, block)  # of 16, 32 or 64
        filters = np.where(
            groups == 1, _whole(inside) * np.ceil(outside / block) * block * taps, filters
        )
    columns = (
        taps * width * np.where(plain, size("channels_out") * image, size("channels_in") * pixels)
    )
    steps = np.maximum(size("stride"), 1.0)
    moved = np.where(steps > 1, inside * pixels * width, 0.0)
    sums = np.where(width < 4, outside * pixels * 4.0, 0.0)
    read = np.where(few, _FEW_SCRATCH, inside * image * width)
    table = {
        "read": graph.read_bytes[rows],
        "written": graph.write_bytes[rows],
        "image": np.where(
            few | np.char.endswith(names, "depthwise_plain"), 1.0, batch * inside * image * width
        ),
        "result": np.where(by_image, 1.0, batch * outside * pixels * width),
        "filters": filters * width,
        "columns": np.where((taps == 1) & (steps == 1) & (kind == _K.CONV), 0.0, columns),
        "scratch": np.where(names == "conv_1x1", threads * (moved + sums), 0.0),
        "reduced": np.where(
            (width < 4) & ~depthwise, 4.0 * filters + outside * pixels * width + read, 0.0
        ),
        "share": threads * (graph.read_bytes[rows] / batch + _THREAD_SCRATCH) + _SHARED_SCRATCH,
    }
    script = {
        _K.CONV_TRANSPOSE: _transposed,
        _K.CONV_BACKWARD_WEIGHT: _filter_gradient,
        _K.CONV_BACKWARD_DATA: _image_gradient,
    }
    native = np.char.endswith(names, "_native").tolist()
    forward = kind == _K.CONV
    parts = np.where(forward & runs_by_group(graph, kind, rows, threads), groups, 1.0).tolist()
    found = []
    for place, is_native in enumerate(native):
        sizes = {name: float(column[place]) for name, column in table.items()}
        own = _by_group(sizes, parts[place]) if parts[place] > 1 else _unfolded(sizes, kind)
        found.append(own if is_native else script.get(kind, _blocked)(sizes))
    return found


def _unfolded(s: dict[str, float], kind: OperatorKind) -> Script:
    """The framework's own: patches of one image at a time, and a product."""
    if kind == _K.CONV:
        return [(1, s["columns"] or 1.0), (0, s["written"]), (1, 0.0)]
    return [(0, s["written"]), (1, s["columns"] or 1.0), (1, 0.0)]


def _by_group(s: dict[str, float], groups: float) -> Script:
    """A copy of each group's image, which goes with its result; the results stay until they are put
    together.
    """
    parts = int(min(groups, _MOST_PARTS))
    script: Script = []
    for part in range(parts):
        script += [(1, s["read"] / parts), (2 + part, s["written"] / parts), (1, 0.0)]
    return [*script, (0, s["written"]), *((2 + part, 0.0) for part in range(parts))]


def _blocked(s: dict[str, float]) -> Script:
    taken = [(4, s["scratch"] or 1.0), (1, s["image"]), (2, s["filters"]), (3, s["result"])]
    return [*taken, (2, 0.0), (1, 0.0), (4, 0.0), (0, s["written"]), (3, 0.0)]


def _transposed(s: dict[str, float]) -> Script:
    taken = [(4, s["share"]), (1, s["image"]), (2, s["filters"]), (3, s["result"])]
    return [
        *taken,
        (2, 0.0),
        (1, 0.0),
        (4, 0.0),
        (1, s["written"]),
        (0, s["written"]),
        (1, 0.0),
        (3, 0.0),
    ]


def _image_gradient(s: dict[str, float]) -> Script:
    return [
        (1, s["result"]),
        (2, s["filters"]),
        (3, s["image"]),
        (2, 0.0),
        (1, 0.0),
        (0, s["written"]),
        (3, 0.0),
    ]


def _filter_gradient(s: dict[str, float]) -> Script:
    taken = [(1, s["result"]), (2, s["image"]), (3, s["filters"]), (4, s["reduced"] or 1.0)]
    return [*taken, (4, 0.0), (2, 0.0), (1, 0.0), (0, s["written"]), (3, 0.0)]

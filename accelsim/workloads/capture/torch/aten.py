"""What each ATen operator of a captured module costs: a registry from operator name to operator
rows.

A formula is one short pure function over shapes, registered under the ATen names it prices, after
the model of ``torch.utils.flop_counter``; registering a name twice raises. This module knows no
torch: the recorder describes every tensor of a call as an `Operand`. FLOP count a multiply-add as
2; the counts per element of norms, softmax and activations are those of `builder`. Matrix
operators, convolutions, attention and recurrent cells are here, everything bound by memory is in
`aten_memory`, `aten_lookups` and `aten_reductions`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain, compress
from math import prod

from accelsim.errors import InvalidValueError
from accelsim.frozen import frozen
from accelsim.plain import Values
from accelsim.workloads.operator import RECURRENT_GATES, OperatorKind, row_flop
from accelsim.workloads.window import three_axes

_K = OperatorKind
#: Backward attention recomputes the scores: five products for the forward's two (Dao 2023,
#: arXiv:2307.08691, section 4.1).
ATTENTION_BACKWARD_RATIO = 2.5
_OF_DIMENSIONS = -1.0


@frozen
class Operand:
    """A tensor as an operator sees it.

    Attributes:
        shape: Sizes.
        stride: Strides in elements; 0 marks a broadcast axis.
        storage: Identity of the memory behind it.
        offset: Where in the storage it starts, in elements.
        element_bytes: Width of one element as captured.
        scaled: Whether it has the module's own dtype, whose width follows the precision policy.
        state: Whether it is (a view of) a parameter or buffer.
    """

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    storage: int
    offset: int
    element_bytes: int
    scaled: bool
    state: bool

    @property
    def elements(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def distinct(self) -> int:
        """Number of elements in memory: broadcast axes count once."""
        return prod(
            [size for size, step in zip(self.shape, self.stride, strict=True) if step or not size]
        )


@frozen
class Call:
    """One dispatched operator, tensors replaced by operands.

    Attributes:
        name: ATen name without overload ("addmm").
        arguments: Arguments by their names in the operator's schema, in the order given.
        outputs: Tensors returned.
    """

    name: str
    arguments: Values
    outputs: tuple[Operand, ...]

    @property
    def is_backward(self) -> bool:
        """Whether it computes gradients: the output's gradient stands before its operands then."""
        return "_backward" in self.name

    @property
    def inputs(self) -> tuple[Operand, ...]:
        """All tensors among the arguments, in order, `out=` excepted."""
        values = (value for name, value in self.arguments.items() if name != "out")
        lists = (value if isinstance(value, (list, tuple)) else (value,) for value in values)
        return tuple(x for x in chain(*lists) if isinstance(x, Operand))


@frozen
class Kernel:
    """One operator row to be.

    Attributes:
        kind: Operator kind.
        dims: Dimensions in the order of ``DIMENSIONS[kind]``.
        reads: Tensors read in full.
        writes: Tensors written in full.
        suffix: Added to the operator's name where one call makes several rows.
        flop: FLOP; those of the dimensions unless given.
        gathered: Elements read beside `reads`, at the precision's activation width.
        scattered: Elements written beside `writes`, likewise.
        waits: Tensors waited for whose bytes `gathered` counts.
    """

    kind: OperatorKind
    dims: tuple[int, ...]
    reads: tuple[Operand, ...]
    writes: tuple[Operand, ...]
    suffix: str = ""
    flop: float = _OF_DIMENSIONS
    gathered: float = 0.0
    scattered: float = 0.0
    waits: tuple[Operand, ...] = ()

    def __post_init__(self) -> None:
        if self.flop == _OF_DIMENSIONS:
            object.__setattr__(self, "flop", float(row_flop(self.kind, self.dims)))


def single_kernel(
    call: Call,
    kind: OperatorKind,
    dims: tuple[int, ...],
    flop: float = _OF_DIMENSIONS,
    suffix: str = "",
) -> list[Kernel]:
    """One row that reads all inputs of a call and writes all its outputs."""
    return [Kernel(kind, dims, call.inputs, call.outputs, suffix, float(flop))]


Formula = Callable[[Call], Sequence[Kernel]]
#: ATen name (without overload, without in-place underscore) -> formula.
FORMULAS: dict[str, Formula] = {}


def names(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


def formula(*texts: str) -> Callable[[Formula], Formula]:
    """Register a formula under ATen names, one or several to a text.

    Raises:
        InvalidValueError: If a name is taken.
    """

    def register(function: Formula) -> Formula:
        for name in " ".join(texts).split():
            if name in FORMULAS:
                raise InvalidValueError("aten operator", name, "a name that is not registered yet")
            FORMULAS[name] = function
        return function

    return register


# -- matrix products


def _product(call: Call, m: int, n: int, k: int) -> list[Kernel]:
    """One (m, k) times (k, n): 2mnk."""
    return single_kernel(call, _K.GEMM, (1, m, n, k))


@formula("mm addmm _int_mm _addmm_activation _scaled_mm")
def matrix_product(call: Call) -> list[Kernel]:
    """(m, k) times (k, n). A weight on the left makes its rows the output features."""
    matrices = [x for x in call.inputs if len(x.shape) == 2]
    a, b = matrices[-2:] if call.name != "_scaled_mm" else matrices[:2]
    (m, k), n = a.shape, b.shape[1]
    return _product(call, n, m, k) if a.state and not b.state else _product(call, m, n, k)


@formula("linear mkldnn_linear")
def linear(call: Call) -> list[Kernel]:
    """x (..., k) times a weight (n, k)."""
    x, weight = call.inputs[:2]
    n, k = weight.shape
    return _product(call, x.elements // max(k, 1), n, k)


@formula("mv addmv")
def matrix_vector(call: Call) -> list[Kernel]:
    """(n, k) times (k); of a matrix that is no weight, a product of one column."""
    matrix = next(x for x in call.inputs if len(x.shape) == 2)
    n, k = matrix.shape
    return _product(call, 1, n, k) if matrix.state else _product(call, n, 1, k)


@formula("dot vdot")
def inner_product(call: Call) -> list[Kernel]:
    """(k) times (k)."""
    return _product(call, 1, 1, call.inputs[0].elements)


@formula("_euclidean_dist")
def distances(call: Call) -> list[Kernel]:
    """Distances of all pairs by a product of (m, k + 2) and (n, k + 2), then a bound and a root
    (ATen Distance.cpp).
    """
    a, b = call.inputs[:2]
    (m, k), n, result = a.shape[-2:], b.shape[-2], call.outputs[0]
    count, k = a.elements // max(m * k, 1), k + 2
    kind = _K.BATCHED_GEMM if count > 1 else _K.GEMM
    product = Kernel(kind, (count, m, n, k), (a, b), (result,), "mm")
    bound = Kernel(_K.ELEMENTWISE, (result.elements, 1, 1), (result,), (result,), "clamp")
    return [product, bound, replace(bound, suffix="sqrt")]


@formula("bmm baddbmm addbmm")
def batched_product(call: Call) -> list[Kernel]:
    """(b, m, k) times (b, k, n): 2bmnk. A stack of weights is one product per group, a broadcast
    weight one GEMM.
    """
    a, b = [x for x in call.inputs if len(x.shape) == 3][-2:]
    (count, m, k), n = a.shape, b.shape[2]
    if b.state == a.state:
        return single_kernel(call, _K.BATCHED_GEMM, (count, m, n, k))
    weight, rows, columns = (b, m, n) if b.state else (a, n, m)
    if weight.stride[0] == 0 or count == 1:
        return _product(call, count * rows, columns, k)
    return single_kernel(call, _K.GROUPED_GEMM, (count, count * rows, columns, k))


@formula("_grouped_mm _scaled_grouped_mm")
def grouped_product(call: Call) -> list[Kernel]:
    """Rows sorted by group times one (k, n) matrix per group; two flat operands make one (k, n)
    product per group.
    """
    (a, b), output = call.inputs[:2], call.outputs[0]
    n, k = output.shape[-1], a.shape[-1]
    m = output.elements // max(n, 1)
    if len(a.shape) == len(b.shape) == 2:
        groups, flop = output.shape[0], 2.0 * output.shape[1] * n * k
        return single_kernel(call, _K.GROUPED_GEMM, (groups, m, n, -(-k // max(groups, 1))), flop)
    groups = (b if len(b.shape) == 3 else a).shape[0]
    return single_kernel(call, _K.GROUPED_GEMM, (groups, m, n, k))


@formula("_trilinear")
def trilinear(call: Call) -> list[Kernel]:
    """Three tensors multiplied and summed over the axes the result lacks: 2 x all index
    combinations.
    """
    shapes = []
    for index, x in enumerate(call.inputs, 1):
        shape = list(x.shape)
        for axis in sorted(call.arguments[f"expand{index}"]):
            shape.insert(axis, 1)
        shapes.append(shape)
    combinations = prod([max(sizes) for sizes in zip(*shapes, strict=True)])
    m = max(call.outputs[0].elements, 1)
    return _product(call, m, 1, combinations // m)


# -- convolutions


def _conv_dims(call: Call, x: Operand, weight: Operand, output: tuple[int, ...]) -> tuple[int, ...]:
    """Dimensions of a convolution between tensors of these sizes."""
    sizes = chain(*(three_axes(shape[2:]) for shape in (x.shape, output, weight.shape)))
    groups, *steps = (call.arguments[name] for name in ("groups", "stride", "dilation"))
    return (*x.shape[:2], output[1], groups, *sizes, *map(max, steps))


@formula("convolution _convolution convolution_overrideable")
def convolution(call: Call) -> list[Kernel]:
    """Each output position takes c_in/groups x window multiply-adds per channel; transposed: each
    input position.

    A sequence that is not contiguous is copied first (ATen Convolution.cpp).
    """
    x, weight = call.inputs[:2]
    kind = _K.CONV_TRANSPOSE if call.arguments["transposed"] else _K.CONV
    kernels = single_kernel(call, kind, _conv_dims(call, x, weight, call.outputs[0].shape))
    return made_contiguous(kernels, *([x] if len(x.shape) == 3 else []))


@formula("convolution_backward convolution_backward_overrideable")
def convolution_backward(call: Call) -> list[Kernel]:
    """The forward's FLOP for the input's gradient, again for the weight's; the bias gradient is a
    column sum.
    """
    gradient, x, weight = call.inputs[:3]
    transposed = call.arguments["transposed"]
    dims = _conv_dims(call, x, weight, gradient.shape)
    flop = row_flop(_K.CONV_TRANSPOSE if transposed else _K.CONV, dims)
    if transposed:
        # It is the convolution whose data gradient the transposed one was: sides trade places.
        batch, c_in, c_out, groups, *sizes = dims
        dims = (batch, c_out, c_in, groups, *sizes[3:6], *sizes[:3], *sizes[6:])
    size, channels = gradient.elements, gradient.shape[1]
    column_sum = (channels, size // max(channels, 1))
    data_kind = _K.CONV if transposed else _K.CONV_BACKWARD_DATA
    gradients = [
        Kernel(data_kind, dims, (gradient, weight), (), "grad_input", flop),
        Kernel(_K.CONV_BACKWARD_WEIGHT, dims, (gradient, x), (), "grad_weight", flop),
        Kernel(_K.REDUCTION, column_sum, (gradient,), (), "grad_bias"),
    ]
    computed = compress(gradients, call.arguments["output_mask"])
    kernels = [
        replace(kernel, writes=(y,)) for kernel, y in zip(computed, call.outputs, strict=False)
    ]
    return made_contiguous(kernels, *([x, gradient] if len(x.shape) == 3 else []))


# -- attention


def attention_kernel(
    operands: Sequence[Operand],
    reads: tuple[Operand, ...],
    writes: tuple[Operand, ...],
    *,
    causal: bool,
    backward: bool = False,
) -> Kernel:
    """Attention over query, key and value laid out (..., heads, length, width); three axes mean one
    head.

    Backward takes `ATTENTION_BACKWARD_RATIO` times the forward's FLOP.
    """
    q, k, v = operands
    heads, kv_heads = (x.shape[-3] if len(x.shape) > 3 else 1 for x in (q, k))
    (q_len, head_dim), kv_len, value_dim = q.shape[-2:], k.shape[-2], v.shape[-1]
    batch = q.elements // max(heads * q_len * head_dim, 1)
    dims = (batch, heads, kv_heads, q_len, kv_len, head_dim, value_dim, int(causal), 0, 0)
    if not backward:
        return Kernel(_K.ATTENTION, dims, reads, writes)
    flop = ATTENTION_BACKWARD_RATIO * row_flop(_K.ATTENTION, dims)
    return Kernel(_K.ATTENTION_BACKWARD, dims, reads, writes, flop=flop)


#: Fused attention operators that have a backward call, and those of the forward pass alone.
_TRAINABLE_ATTENTION = """
    _scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_for_cpu
    _scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention
    _scaled_dot_product_fused_attention_overrideable
"""
_FORWARD_ATTENTION = """
    _scaled_dot_product_attention_math _scaled_dot_product_attention_math_for_mps
    scaled_dot_product_attention
"""


def backward_of(text: str) -> str:
    """The names of a text's operators that compute gradients."""
    return " ".join(f"{name}_backward" for name in text.split())


@formula(_TRAINABLE_ATTENTION, _FORWARD_ATTENTION, backward_of(_TRAINABLE_ATTENTION))
def fused_attention(call: Call) -> list[Kernel]:
    """Query, key, value and mask read once, output and log-sum-exp written once; backward gradient,
    query, key, value and output read, their three gradients written.
    """
    backward, causal = call.is_backward, bool(call.arguments.get("is_causal"))
    operands = call.inputs[backward : 3 + backward]
    writes = call.outputs if backward else call.outputs[:2]
    return [attention_kernel(operands, call.inputs, writes, causal=causal, backward=backward)]


def inner_tensor(like: Operand, *shape: int) -> Operand:
    """A tensor inside a fused operator: described, but with no storage of its own."""
    return Operand(shape, (1,) * len(shape), -1, 0, like.element_bytes, like.scaled, state=False)


def _dense_strides(x: Operand) -> tuple[int, ...]:
    return tuple(prod(x.shape[axis + 1 :]) for axis in range(len(x.shape)))


def lies_together(x: Operand) -> bool:
    """Whether a tensor lies in memory as its shape says."""
    sides = zip(x.shape, x.stride, _dense_strides(x), strict=True)
    return all(size <= 1 or a == b for size, a, b in sides)


def made_contiguous(kernels: Sequence[Kernel], *operands: Operand) -> list[Kernel]:
    """The kernels behind copies of those operands that do not lie as their shape says; they read
    the copies.
    """
    copies = {
        x: replace(inner_tensor(x, *x.shape), stride=_dense_strides(x))
        for x in operands
        if not lies_together(x)
    }
    return [
        *(Kernel(_K.COPY, (x.elements,), (x,), (y,), "clone") for x, y in copies.items()),
        *(replace(k, reads=tuple(copies.get(x, x) for x in k.reads)) for k in kernels),
    ]


# -- recurrent cells


def recurrent_kernel(
    kind: OperatorKind,
    sizes: tuple[int, int, int, int, int],
    reads: tuple[Operand, ...],
    writes: tuple[Operand, ...],
    *,
    projection: int = 0,
    suffix: str = "",
) -> Kernel:
    """One recurrent layer: 2 x directions x batch x steps x gates x hidden x (input + state); LSTM:
    Hochreiter and Schmidhuber, 1997, its projection Sak et al., arXiv:1402.1128; GRU: Cho et al.,
    arXiv:1406.1078.

    Args:
        kind: RNN, LSTM or GRU.
        sizes: batch, steps, input_size, hidden_size, directions.
        reads: Tensors read.
        writes: Tensors written.
        projection: Width of a projected LSTM state; 0 for none.
        suffix: Layer name.
    """
    batch, steps, width, hidden, directions = sizes
    matrix = RECURRENT_GATES[kind] * hidden * (width + (projection or hidden)) + hidden * projection
    return Kernel(kind, sizes, reads, writes, suffix, 2.0 * directions * batch * steps * matrix)


@formula("mkldnn_rnn_layer")
def recurrent_layer(call: Call) -> list[Kernel]:
    """One direction of one LSTM layer, input (steps, batch, width)."""
    steps, batch, width = call.inputs[0].shape
    sizes = (batch, steps, width, call.arguments["hidden_size"], 1)
    return [recurrent_kernel(_K.LSTM, sizes, call.inputs, call.outputs[:3])]

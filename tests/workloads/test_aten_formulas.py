"""FLOP of single ATen calls by closed form. The name of every argument is torch's own: its
operator schemas say it.
"""

from dataclasses import replace
from math import prod

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from accelsim.dtype import precision  # noqa: E402
from accelsim.workloads.capture.torch import (  # noqa: E402, F401 (they register their formulas)
    aten_lookups,
    aten_memory,
    aten_reductions,
)
from accelsim.workloads.capture.torch.aten import FORMULAS, Call, Operand  # noqa: E402
from accelsim.workloads.capture.torch.module import capture  # noqa: E402
from accelsim.workloads.capture.workload import captured_training  # noqa: E402
from accelsim.workloads.operator import DIMENSIONS, OperatorKind  # noqa: E402

pytestmark = pytest.mark.torch
K = OperatorKind
ATEN = torch.ops.aten
FORWARD_ATTENTION = [
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_fused_attention_overrideable",
    "_scaled_dot_product_attention_math",
    "scaled_dot_product_attention",
]
BACKWARD_ATTENTION = [f"{name}_backward" for name in FORWARD_ATTENTION[:5]]


def tensor(*shape, state=False):
    stride = tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))
    return Operand(shape, stride, id(shape), 0, 4, scaled=True, state=state)


def schema(name):
    packet = getattr(ATEN, name)
    return getattr(packet, packet.overloads()[0])._schema


def kernels(name, *outputs, **given):
    """Kernels of a call whose arguments have the names and defaults that torch's schema says."""
    parameters = schema(name).arguments
    named = [parameter.name for parameter in parameters]
    assert set(given) <= set(named)
    arguments = {key: given[key] for key in named if key in given}
    missing = [p for p in parameters if p.name not in given and p.has_default_value()]
    arguments |= {parameter.name: parameter.default_value for parameter in missing}
    found = FORMULAS[name](Call(name, arguments, outputs))
    for kernel in found:
        named = [
            name for name in DIMENSIONS[kernel.kind] if name not in {"runs", "even"}
        ]  # the recorder counts these
        assert len(kernel.dims) in {
            len(named),
            len(named) - ("inner" in named),
        }  # reductions of neighbours have none
        assert kernel.flop >= 0
    return found


def called(name, arguments, outputs):
    """A call of arguments in the order of torch's schema."""
    parameters = (parameter.name for parameter in schema(name).arguments)
    return Call(name, dict(zip(parameters, arguments, strict=False)), outputs)


def one(name, *outputs, **given):
    (kernel,) = kernels(name, *outputs, **given)
    return kernel


@pytest.mark.parametrize(
    ("name", "given", "output", "dims", "flop"),
    [
        ("mv", {"self": (5, 7), "vec": (7,)}, (5,), (1, 5, 1, 7), 70),
        ("addmv", {"self": (5,), "mat": (5, 7), "vec": (7,)}, (5,), (1, 5, 1, 7), 70),
        ("dot", {"self": (9,), "tensor": (9,)}, (), (1, 1, 1, 9), 18),
        ("mm", {"self": (3, 4), "mat2": (4, 5)}, (3, 5), (1, 3, 5, 4), 120),
        ("addmm", {"self": (3, 5), "mat1": (3, 4), "mat2": (4, 5)}, (3, 5), (1, 3, 5, 4), 120),
        (
            "linear",
            {"input": (2, 3, 4), "weight": (5, 4), "bias": (5,)},
            (2, 3, 5),
            (1, 6, 5, 4),
            240,
        ),
        ("bmm", {"self": (6, 3, 4), "mat2": (6, 4, 5)}, (6, 3, 5), (6, 3, 5, 4), 720),
        (
            "baddbmm",
            {"self": (6, 3, 5), "batch1": (6, 3, 4), "batch2": (6, 4, 5)},
            (6, 3, 5),
            (6, 3, 5, 4),
            720,
        ),
        (
            "addbmm",
            {"self": (3, 5), "batch1": (6, 3, 4), "batch2": (6, 4, 5)},
            (3, 5),
            (6, 3, 5, 4),
            720,
        ),
        (
            "_grouped_mm",
            {"self": (10, 4), "mat2": (3, 4, 5), "offs": (3,)},
            (10, 5),
            (3, 10, 5, 4),
            400,
        ),
        (
            "_grouped_mm",
            {"self": (4, 12), "mat2": (12, 5), "offs": (3,)},
            (3, 4, 5),
            (3, 12, 5, 4),
            480,
        ),
        (
            "_scaled_mm",
            {"self": (3, 4), "mat2": (4, 5), "scale_a": (3, 1), "scale_b": (1, 5)},
            (3, 5),
            (1, 3, 5, 4),
            120,
        ),
    ],
)
def test_matrix_products(name, given, output, dims, flop):
    kernel = one(name, tensor(*output), **{place: tensor(*shape) for place, shape in given.items()})
    assert kernel.dims == dims
    assert kernel.flop == flop


def test_a_weight_on_the_left_makes_its_rows_the_features():
    kernel = one("mm", tensor(8, 3), self=tensor(8, 4, state=True), mat2=tensor(4, 3))
    assert kernel.dims == (1, 3, 8, 4)
    assert kernel.flop == 2 * 8 * 3 * 4


def test_stacked_weights_are_one_product_per_group_and_broadcast_ones_a_single_product():
    x, output = tensor(6, 3, 4), tensor(6, 3, 5)
    stacked = one("bmm", output, self=x, mat2=tensor(6, 4, 5, state=True))
    assert (stacked.kind, stacked.dims, stacked.flop) == (K.GROUPED_GEMM, (6, 18, 5, 4), 720)
    shared = Operand((6, 4, 5), (0, 5, 1), 1, 0, 4, scaled=True, state=True)
    broadcast = one("bmm", output, self=x, mat2=shared)
    assert (broadcast.kind, broadcast.dims, broadcast.flop) == (K.GEMM, (1, 18, 5, 4), 720)
    left = one("bmm", tensor(6, 5, 3), self=tensor(6, 5, 4, state=True), mat2=tensor(6, 4, 3))
    assert (left.kind, left.dims, left.flop) == (K.GROUPED_GEMM, (6, 18, 5, 4), 720)


def test_bilinear_form_counts_every_combination():
    # nn.Bilinear(7, 11, 5) on 3 rows: 2 x 3 x 7 x 11 x 5.
    kernel = one(
        "_trilinear",
        tensor(3, 5),
        i1=tensor(3, 7),
        i2=tensor(5, 7, 11),
        i3=tensor(3, 11),
        expand1=[1, 3],
        expand2=[0],
        expand3=[1, 2],
        sumdim=[2, 3],
    )
    assert kernel.flop == 2 * 3 * 7 * 11 * 5
    assert kernel.dims == (1, 15, 1, 77)


CONVOLUTION = {
    "stride": [2, 2],
    "padding": [1, 1],
    "dilation": [1, 1],
    "output_padding": [0, 0],
    "groups": 2,
}


@pytest.mark.parametrize(
    ("transposed", "size", "out"),
    [(False, (8, 8), (4, 4)), (True, (4, 4), (8, 8))],
    ids=["plain", "transposed"],
)
def test_convolutions_and_their_gradients(transposed, size, out):
    """A transposed convolution works at its input's positions, a plain one at its output's: 4 x 4
    both here.
    """
    x, y = tensor(3, 6, *size), tensor(3, 10, *out)
    weight = tensor(*((6, 5) if transposed else (10, 3)), 3, 3)
    flop = 2 * 3 * 16 * 10 * 6 // 2 * 9
    forward = one("convolution", y, input=x, weight=weight, transposed=transposed, **CONVOLUTION)
    assert forward.kind is (K.CONV_TRANSPOSE if transposed else K.CONV)
    assert forward.flop == flop
    assert forward.dims == (3, 6, 10, 2, 1, *size, 1, *out, 1, 3, 3, 2, 1)
    data, weights, bias = kernels(
        "convolution_backward",
        x,
        weight,
        tensor(10),
        grad_output=y,
        input=x,
        weight=weight,
        transposed=transposed,
        output_mask=[True, True, True],
        **CONVOLUTION,
    )
    assert (data.flop, weights.flop, bias.flop) == (flop, flop, 3 * 10 * prod(out))
    assert data.kind is (K.CONV if transposed else K.CONV_BACKWARD_DATA)
    if transposed:  # the data gradient is a plain convolution of the output's gradient
        assert data.dims == (3, 10, 6, 2, 1, *out, 1, *size, 1, 3, 3, 2, 1)
    assert weights.kind is K.CONV_BACKWARD_WEIGHT
    assert bias.dims == (10, 3 * prod(out))


@pytest.mark.parametrize(
    ("mask", "names"),
    [
        ([True, False, False], ["grad_input"]),
        ([False, True, False], ["grad_weight"]),
        ([False, True, True], ["grad_weight", "grad_bias"]),
    ],
)
def test_only_the_wanted_gradients_are_computed(mask, names):
    x, y, weight = tensor(1, 4, 6, 6), tensor(1, 8, 6, 6), tensor(8, 4, 3, 3)
    wanted = [operand for operand, on in zip((x, weight, tensor(8)), mask, strict=True) if on]
    found = kernels(
        "convolution_backward",
        *wanted,
        grad_output=y,
        input=x,
        weight=weight,
        transposed=False,
        output_mask=mask,
        **(CONVOLUTION | {"groups": 1, "stride": [1, 1]}),
    )
    assert [kernel.suffix for kernel in found] == names
    assert [kernel.writes for kernel in found] == [(operand,) for operand in wanted]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", FORWARD_ATTENTION)
def test_attention_reads_its_causal_flag_where_torch_has_it(name, causal):
    q, k, v = tensor(2, 8, 10, 16), tensor(2, 4, 12, 16), tensor(2, 4, 12, 24)
    kernel = one(
        name, tensor(2, 8, 10, 24), tensor(2, 8, 10), query=q, key=k, value=v, is_causal=causal
    )
    assert kernel.dims == (2, 8, 4, 10, 12, 16, 24, int(causal), 0, 0)
    assert kernel.flop == 2 * 2 * 8 * 10 * 12 * (16 + 24)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", BACKWARD_ATTENTION)
def test_attention_gradients_read_their_causal_flag_where_torch_has_it(name, causal):
    q, k, v = (tensor(2, 8, 10, 16) for _ in range(3))
    first = schema(name).arguments[0].name  # the output's gradient, under three names
    given = {first: q, "query": q, "key": k, "value": v, "is_causal": causal}
    kernel = one(name, q, k, v, **given)
    assert kernel.dims[7] == int(causal)
    assert kernel.kind is K.ATTENTION_BACKWARD
    assert kernel.flop == 5 * (2 * 2 * 8 * 10 * 10 * 16)  # five products for the forward's two


def test_recurrent_layer_of_the_cpu_library():
    x, y = tensor(7, 3, 20), tensor(7, 3, 32)
    kernel = one("mkldnn_rnn_layer", y, y, y, input=x, hidden_size=32)
    assert kernel.dims == (3, 7, 20, 32, 1)
    assert kernel.flop == 2 * 3 * 7 * 4 * 32 * (20 + 32)


@pytest.mark.parametrize(
    ("name", "given", "dims", "flop"),
    [
        ("native_layer_norm", {"input": (4, 6, 8), "normalized_shape": [8]}, (24, 8), 8),
        (
            "native_layer_norm_backward",
            {"grad_out": (4, 6, 8), "input": (4, 6, 8), "normalized_shape": [6, 8]},
            (4, 48),
            16,
        ),
        ("_fused_rms_norm", {"input": (4, 6, 8), "normalized_shape": [8]}, (24, 8), 4),
        (
            "_fused_rms_norm_backward",
            {"grad_out": (4, 6, 8), "input": (4, 6, 8), "normalized_shape": [8]},
            (24, 8),
            8,
        ),
        ("native_group_norm", {"input": (4, 6, 8), "group": 3}, (12, 16), 8),
        (
            "native_group_norm_backward",
            {"grad_out": (4, 6, 8), "input": (4, 6, 8), "group": 3},
            (12, 16),
            16,
        ),
    ],
)
def test_norms_count_rows_and_width(name, given, dims, flop):
    operands = {
        place: tensor(*value) if isinstance(value, tuple) else value
        for place, value in given.items()
    }
    kernel = one(name, tensor(4, 6, 8), **operands)
    assert kernel.dims == dims
    assert kernel.flop == flop * 4 * 6 * 8


@pytest.mark.parametrize(
    ("name", "given", "outputs", "window"),
    [
        ("avg_pool2d", {"self": (2, 3, 8, 8), "kernel_size": [2, 4]}, [(2, 3, 4, 2)], 8),
        (
            "max_pool2d_with_indices",
            {"self": (2, 3, 8, 8), "kernel_size": [2]},
            [(2, 3, 4, 4)] * 2,
            4,
        ),
        ("_adaptive_avg_pool2d", {"self": (2, 3, 8, 8), "output_size": [4, 2]}, [(2, 3, 4, 2)], 8),
        (
            "avg_pool2d_backward",
            {"grad_output": (2, 3, 4, 2), "self": (2, 3, 8, 8), "kernel_size": [2, 4]},
            [(2, 3, 8, 8)],
            8,
        ),
        (
            "max_pool2d_with_indices_backward",
            {"grad_output": (2, 3, 4, 4), "self": (2, 3, 8, 8), "kernel_size": [2]},
            [(2, 3, 8, 8)],
            4,
        ),
        (
            "_adaptive_avg_pool2d_backward",
            {"grad_output": (2, 3, 4, 2), "self": (2, 3, 8, 8)},
            [(2, 3, 8, 8)],
            8,
        ),
    ],
)
def test_pools_count_one_flop_per_element_of_each_window(name, given, outputs, window):
    operands = {
        place: tensor(*value) if isinstance(value, tuple) else value
        for place, value in given.items()
    }
    kernel = one(name, *(tensor(*shape) for shape in outputs), **operands)
    small = given.get("grad_output", outputs[0])
    assert kernel.dims == (2, 3, 64, prod(small[2:]), window)
    assert kernel.flop == window * prod(small)
    if "grad_output" in given:  # the gradient needs the windows, not the values pooled
        assert operands["self"] not in kernel.reads


def test_a_sampled_grid_looks_up_four_pixels_for_each_place_and_channel():
    image, grid = tensor(2, 3, 10, 12), tensor(2, 7, 5, 2)
    found = one("grid_sampler_2d", tensor(2, 3, 7, 5), input=image, grid=grid)
    places = 2 * 3 * 7 * 5
    assert (found.kind, found.dims) == (K.EMBEDDING, (4 * places, 1, image.elements))
    assert (found.flop, found.gathered, found.reads, found.waits) == (
        7 * places,
        4 * places,
        (grid,),
        (image,),
    )


@pytest.mark.parametrize("name", ["_softmax", "_log_softmax"])
def test_a_softmax_copies_an_operand_that_is_not_contiguous(name):
    transposed = Operand((2, 4, 5), (20, 1, 4), 7, 0, 4, scaled=True, state=False)
    copied, taken = FORMULAS[name](called(name, (transposed, -1, False), (tensor(2, 4, 5),)))
    assert (copied.kind, copied.dims, copied.suffix, copied.reads) == (
        K.COPY,
        (40,),
        "clone",
        (transposed,),
    )
    assert (taken.kind, taken.dims, taken.suffix) == (K.SOFTMAX, (8, 5), "")
    assert taken.reads == copied.writes
    assert taken.reads[0].stride == (20, 5, 1)
    assert (
        len(kernels(name, tensor(2, 4, 5), self=tensor(2, 4, 5), dim=1, half_to_float=False)) == 1
    )


def test_a_softmax_copies_a_gradient_that_is_not_contiguous():
    transposed = Operand((2, 4, 5), (20, 1, 4), 7, 0, 4, scaled=True, state=False)
    output = tensor(2, 4, 5)
    arguments = (transposed, output, -1, None)
    copied, taken = FORMULAS["_softmax_backward_data"](
        called("_softmax_backward_data", arguments, (tensor(2, 4, 5),))
    )
    assert (copied.kind, taken.kind) == (K.COPY, K.SOFTMAX)
    assert taken.reads == (*copied.writes, output)


def test_a_layer_norm_copies_what_is_not_contiguous():
    transposed = Operand((2, 4, 5), (20, 1, 4), 7, 0, 4, scaled=True, state=False)
    outputs = (tensor(2, 4, 5), tensor(2, 4, 1), tensor(2, 4, 1))
    call = called("native_layer_norm", (transposed, [5], None, None, 1e-5), outputs)
    copied, taken = FORMULAS[call.name](call)
    assert (copied.kind, copied.dims, copied.reads, copied.suffix) == (
        K.COPY,
        (40,),
        (transposed,),
        "clone",
    )
    assert (taken.kind, taken.dims, taken.reads) == (K.LAYER_NORM, (8, 5), copied.writes)
    other = tensor(2, 4, 5)
    arguments = (transposed, other, [5], tensor(2, 4, 1), tensor(2, 4, 1), None, None, [True] * 3)
    copied, taken = FORMULAS["native_layer_norm_backward"](
        called("native_layer_norm_backward", arguments, outputs[:1])
    )
    assert (copied.kind, taken.kind, taken.reads[:2]) == (
        K.COPY,
        K.LAYER_NORM,
        (*copied.writes, other),
    )


def test_a_convolved_sequence_is_copied_where_it_is_not_contiguous():
    sequence = Operand((2, 4, 8), (32, 1, 4), 7, 0, 4, scaled=True, state=False)
    weight, output = tensor(6, 4, 1, state=True), tensor(2, 6, 8)
    rest = (None, [1], [0], [1], False, [0], 1)
    copied, taken = FORMULAS["convolution"](
        called("convolution", (sequence, weight, *rest), (output,))
    )
    assert (copied.kind, copied.dims, copied.reads) == (K.COPY, (64,), (sequence,))
    assert (taken.kind, taken.reads) == (K.CONV, (*copied.writes, weight))
    gradient = replace(output, stride=(48, 1, 6))
    arguments = (gradient, sequence, weight, *rest, [True, True, False])
    found = FORMULAS["convolution_backward"](
        called("convolution_backward", arguments, (sequence, weight))
    )
    assert [kernel.kind for kernel in found] == [
        K.COPY,
        K.COPY,
        K.CONV_BACKWARD_DATA,
        K.CONV_BACKWARD_WEIGHT,
    ]
    image = replace(sequence, shape=(2, 4, 4, 2), stride=(32, 1, 8, 4))
    call = called(
        "convolution", (image, tensor(6, 4, 1, 1, state=True), *rest), (tensor(2, 6, 4, 2),)
    )
    assert len(FORMULAS["convolution"](call)) == 1


def test_a_softmax_safe_from_rows_of_infinities_is_four_kernels():
    found = kernels("_safe_softmax", tensor(2, 4, 5), self=tensor(2, 4, 5), dim=-1)
    assert [kernel.suffix for kernel in found] == ["", "eq", "all", "where"]
    assert [kernel.dims for kernel in found] == [(8, 5), (40, 1, 1), (8, 5), (40, 2, 1)]


def test_a_logarithm_of_summed_exponentials_is_nine_kernels():
    found = kernels("logsumexp", tensor(3, 4), self=tensor(3, 5, 4), dim=(1,))
    assert [kernel.suffix for kernel in found] == [
        "amax",
        "abs",
        "eq",
        "masked_fill",
        "sub",
        "exp",
        "sum",
        "log",
        "add",
    ]
    assert [kernel.dims[0] for kernel in found] == [12, 12, 12, 12, 60, 60, 12, 12, 12]
    assert found[0].dims == found[6].dims == (12, 5)
    assert found[-1].writes == found[6].writes  # the result


def test_a_gated_half_writes_half_of_what_it_reads():
    workload = capture(torch.nn.GLU(), torch.randn(4, 6))
    assert workload.note is None
    graph = workload.lower(workload.default, precision("fp32")).graph
    assert graph.flop.tolist() == [5 * 4 * 3]
    assert (graph.read_bytes[0], graph.write_bytes[0]) == (4 * 6 * 4, 4 * 3 * 4)


def test_a_learned_slope_costs_as_a_fixed_one_and_a_diagonal_is_a_copy():
    class Both(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.slopes, self.scales = torch.nn.PReLU(6), torch.nn.Parameter(torch.ones(6))

        def forward(self, x):
            return self.slopes(x) @ torch.diag(self.scales)

    workload = capture(Both(), torch.randn(4, 6), training=True)
    assert workload.note is None
    graph = workload.lower(workload.default, precision("fp32")).graph
    kinds = dict(zip(graph.name, zip(graph.kind, graph.flop, strict=True), strict=True))
    assert [flop for name, (_, flop) in kinds.items() if "prelu" in name] == [2 * 4 * 6]
    assert [OperatorKind(kind) for name, (kind, _) in kinds.items() if "diag" in name] == [K.COPY]


def test_a_search_among_boundaries_halves_them():
    values, steps = tensor(3, 5), tensor(255)
    binned = one("bucketize", tensor(3, 5), self=values, boundaries=steps)
    found = one("searchsorted", tensor(3, 5), sorted_sequence=steps, self=values)
    assert (binned.flop, found.flop) == (15 * 8, 15 * 8)  # 255 boundaries are 2^8 - 1
    assert one("bucketize", tensor(3, 5), self=values, boundaries=tensor(256)).flop == 15 * 9


@pytest.mark.parametrize(
    ("shape", "dims", "inner"),
    [
        ((3, 5, 4), (1,), 4),
        ((3, 5, 4), (0, 1), 4),
        ((3, 5, 4), (2,), 0),
        ((3, 1, 5, 4), (1,), 60),
        ((3, 5, 1), (1,), 0),
    ],
)
def test_a_maximum_says_how_much_lies_together_where_the_innermost_axis_stays(shape, dims, inner):
    kept = [size for axis, size in enumerate(shape) if axis not in dims]
    found = kernels("amax", tensor(*kept), self=tensor(*shape), dim=dims)[0]
    assert found.suffix == ("outer" if inner else "")
    assert (*found.dims, 0)[2] == inner


def captured(function, *inputs, training=False):
    class Module(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(1))

        def forward(self, x):
            return function(x * self.scale if training else x)

    rule = "adamw" if training else None
    workload = capture(Module(), *inputs, training=training, optimizer=rule, batch_dimension=None)
    if training:
        return captured_training(
            workload, workload.default, precision("fp32"), optimizer_name="adamw"
        )
    return workload.lower(workload.default, precision("fp32")).graph


def test_an_instance_norm_takes_its_own_statistics_in_inference():
    x, statistics = torch.randn(2, 4, 6, 6), torch.ones(4)
    norms = (
        torch.nn.functional.instance_norm,
        lambda x: torch.batch_norm(x, None, None, statistics, statistics, False, 0.1, 1e-5, False),
    )
    assert [captured(norm, x).name[0].endswith(".own") for norm in norms] == [True, False]


@pytest.mark.parametrize("name", ["silu", "linear1d"])
def test_gradients_with_a_kernel_of_their_own_are_one_operator(name):
    call = {
        "silu": torch.nn.functional.silu,
        "linear1d": lambda x: torch.nn.functional.interpolate(x, scale_factor=2, mode="linear"),
    }[name]
    names = captured(call, torch.randn(2, 3, 8), training=True).name
    assert [found for found in names if f"{name}_backward" in found] == [
        "silu_backward" if name == "silu" else "upsample_linear1d_backward"
    ]
    assert not [found for found in names if found.startswith("sigmoid")]


def test_an_image_is_rolled_axis_by_axis_and_stacked_piece_by_piece():
    x = torch.randn(2, 8, 8, 6)
    assert captured(lambda x: x.roll((3, 3), (1, 2)), x).name == ("roll", "roll")
    stacked = captured(lambda x: torch.stack([x, x, x], -1), x)
    assert stacked.dimension("runs", np.array([0]), K.COPY)[0] == 3 * x.numel()


def test_rows_across_the_last_axis_are_told_apart():
    x = torch.randn(2, 3, 5)
    names = [captured(lambda x, axis=axis: x.softmax(axis), x).name[0] for axis in (1, 2)]
    assert names == ["_softmax.across", "_softmax"]
    rows = captured(lambda x: x.sort(1)[0], x)
    assert (rows.name[0], rows.dims[0, :2].tolist()) == ("sort.across", [10, 3])


def test_distances_of_pairs_are_a_product():
    graph = captured(lambda x: torch.cdist(x, x), torch.randn(40, 6))
    assert graph.dims[0, :4].tolist() == [1, 40, 40, 8]
    assert graph.flop[0] == 2 * 40 * 40 * 8


def test_a_spectrum_counts_its_passes():
    graph = captured(lambda x: torch.fft.rfft(x).real, torch.randn(4, 64))
    assert graph.flop[0] == 2.5 * 6 * 4 * 64

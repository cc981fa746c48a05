"""What operators allocate, against traced block sizes (torch 2.13, oneDNN 3.12)."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from accelsim.calibration.measurement.captured_rows import case_graph
from accelsim.calibration.measurement.case import Case
from accelsim.cost.cpu.kernels import kernel_names
from accelsim.cost.cpu.operator_memory import operator_scripts

#: Blocks below this were not traced.
TRACED_BYTES = 4096


def _conv(batch, inside, outside, kernel, side, stride=1, groups=1, operator="convolution"):
    shape = {"batch": batch, "channels_in": inside, "channels_out": outside, "groups": groups}
    return operator, shape | {"kernel": kernel, "side": side, "stride": stride}


#: Operator, format, threads, and the blocks in their order: sizes where taken, the same below zero
#: where freed.
TRACED = [
    # channels in blocks of sixteen; images of fewer are read as they are
    (_conv(2, 64, 24, 3, 28), "fp32", 1, [401408, 73728, 200704, -73728, -401408, 150528, -200704]),
    (_conv(2, 12, 64, 3, 28), "bf16", 1, [13824, 200704, -13824, 200704, -200704]),
    (
        _conv(4, 100, 100, 5, 14, 1, 100),
        "fp32",
        1,
        [351232, 11200, 351232, -11200, -351232, 313600, -351232],
    ),
    # sums in 32 bits of one image per thread, and pixels that a stride picks
    (
        _conv(4, 256, 64, 1, 28),
        "bf16",
        1,
        [200832, 1605632, 32768, 401408, -32768, -1605632, -200832, 401408, -401408],
    ),
    (
        _conv(4, 256, 64, 1, 28),
        "bf16",
        2,
        [401536, 1605632, 32768, 401408, -32768, -1605632, -401536, 401408, -401408],
    ),
    (
        _conv(2, 64, 128, 1, 56, 2),
        "bf16",
        1,
        [502016, 802816, 16384, 401408, -16384, -802816, -502016, 401408, -401408],
    ),
    # transposed: filters in blocks of 16, 32 or 64, an image and scratch per thread, the result
    # twice
    (
        ("convolution_transpose", {"batch": 8, "channels_in": 64, "channels_out": 48, "side": 14}),
        "fp32",
        1,
        [
            86168,
            401408,
            65536,
            1204224,
            -65536,
            -401408,
            -86168,
            1204224,
            1204224,
            -1204224,
            -1204224,
        ],
    ),
    (
        ("convolution_transpose", {"batch": 8, "channels_in": 64, "channels_out": 48, "side": 14}),
        "fp32",
        2,
        [
            159920,
            401408,
            65536,
            1204224,
            -65536,
            -401408,
            -159920,
            1204224,
            1204224,
            -1204224,
            -1204224,
        ],
    ),
    # patches of one image at a time
    (_conv(1, 128, 64, 1, 12, 2), "fp32", 1, [18432, 9216, -18432]),
    (
        _conv(2, 23, 128, 1, 16, operator="convolution_backward.grad_input"),
        "fp32",
        1,
        [47104, 23552, -23552],
    ),
    (
        _conv(3, 41, 157, 3, 43, 2, operator="convolution_backward.grad_weight"),
        "fp32",
        1,
        [929280, 1065024, 276480, -1065024, -929280, 231732, -276480],
    ),
    (
        _conv(3, 41, 157, 3, 43, 2, operator="convolution_backward.grad_weight"),
        "bf16",
        1,
        [464640, 532512, 138240, 638084, -638084, -532512, -464640, 115866, -138240],
    ),
    # few channels: as they are up to three, half blocks in 32 bits; in 16 bits all as they are
    (
        _conv(32, 1, 6, 5, 32, operator="convolution_backward.grad_weight"),
        "fp32",
        1,
        [2097152, -2097152],
    ),
    (
        _conv(32, 4, 32, 8, 84, 4, operator="convolution_backward.grad_weight"),
        "fp32",
        1,
        [1982464, 7225344, 65536, -7225344, -1982464, 32768, -65536],
    ),
    (
        _conv(16, 12, 24, 3, 28, operator="convolution_backward.grad_weight"),
        "fp32",
        1,
        [1204224, 802816, 13824, -802816, -1204224, 10368, -13824],
    ),
    (
        _conv(16, 12, 32, 3, 28, operator="convolution_backward.grad_weight"),
        "bf16",
        1,
        [802816, 6912, 72580, -72580, -802816, 6912, -6912],
    ),
    (
        ("_fused_rms_norm", {"rows": 609, "columns": 2784}),
        "fp32",
        1,
        [6781824, -6781824, 6781824, 6781824, -6781824],
    ),
    (("mean", {"rows": 609, "columns": 2784}), "bf16", 1, [6781824, -6781824]),
    (("mean", {"rows": 609, "columns": 2784}), "fp32", 1, []),
    (
        ("max_pool2d_with_indices_backward", {"batch": 4, "channels": 10, "kernel": 2, "side": 28}),
        "fp32",
        1,
        [125440],
    ),
    # the root corrected stays until the next parameter's is made
    (
        ("adamw", {"parameters": 1681792, "tensors": 2}),
        "bf16",
        1,
        [1681792, 1681792, -1681792, 1681792, 1681792, -1681792, -1681792, -1681792],
    ),
]


def _blocks(script):
    found, slots = [], {}
    for slot, size in script:
        if size:
            slots[slot] = size
            found.append(size)
        elif slot in slots:
            found.append(-slots.pop(slot))
    return [size for size in found if abs(size) >= TRACED_BYTES]


@pytest.mark.parametrize(("what", "dtype", "threads", "expected"), TRACED)
def test_blocks_are_those_traced(what, dtype, threads, expected):
    operator, shape = what
    graph = case_graph([Case("", operator, shape, dtype, threads)])
    names = kernel_names(graph, is_training=False, threads=threads)
    found = _blocks(operator_scripts(graph, names, threads)[0])
    assert [size > 0 for size in found] == [size > 0 for size in expected]
    assert found == pytest.approx(expected, rel=0.05)


@pytest.mark.torch
@pytest.mark.parametrize(("side", "copies"), [(32, 2), (36, 0)])
def test_small_images_are_upsampled_channels_last(side, copies):
    """Of both a copy, where height and width are at most 128 together."""
    torch = pytest.importorskip("torch")
    from accelsim.workloads.capture.module import capture
    from accelsim.workloads.dtype import precision
    from accelsim.workloads.model import RunShape

    module = torch.nn.Sequential(torch.nn.Conv2d(8, 16, 3, 1, 1), torch.nn.Upsample(scale_factor=2))
    workload = capture(module.eval(), (torch.randn(1, 8, side, side),), batch_dimension=None)
    graph = workload.lower(RunShape(batch=workload.default.batch), precision("fp32")).graph
    script = operator_scripts(graph, kernel_names(graph, is_training=False))[-1]
    image = 16 * side**2 * 4
    assert _blocks(script) == [4 * image] + (
        [image, 4 * image, -4 * image, -image] if copies else []
    )


@pytest.mark.torch
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_a_norm_writes_its_output_in_a_block_of_its_own_size(dtype):
    """A hole that an activation left is exactly as large: 256 bytes of statistics with it would not
    fit.
    """
    torch = pytest.importorskip("torch")
    from accelsim.workloads.capture.module import capture
    from accelsim.workloads.dtype import precision
    from accelsim.workloads.model import RunShape

    workload = capture(
        torch.nn.BatchNorm2d(64).eval(), (torch.randn(2, 64, 8, 8),), batch_dimension=None
    )
    graph = workload.lower(RunShape(batch=workload.default.batch), precision(dtype)).graph
    width = 4 if dtype == "fp32" else 2
    assert operator_scripts(graph, kernel_names(graph, is_training=False))[-1][0] == (
        0,
        2 * 64 * 64 * width,
    )


@pytest.mark.torch
def test_statistics_of_a_layer_norm_go_at_once_in_inference():
    """Mean and deviation in two blocks; a copy of what does not lie together is a row of its own
    before.
    """
    torch = pytest.importorskip("torch")
    from accelsim.workloads.capture.module import capture
    from accelsim.workloads.dtype import precision
    from accelsim.workloads.model import RunShape

    class Transposed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.LayerNorm(64)

        def forward(self, x):
            return torch.softmax(self.norm(x.transpose(1, 2)).transpose(1, 2), -1)

    workload = capture(Transposed().eval(), (torch.randn(8, 64, 1000),), batch_dimension=None)
    graph = workload.lower(RunShape(batch=workload.default.batch), precision("fp32")).graph
    copied, normed, none, softened = operator_scripts(graph, kernel_names(graph, is_training=False))
    size, statistics = 8 * 64 * 1000 * 4, 8 * 1000 * 4
    assert _blocks(copied) == [size]
    assert _blocks(normed) == [size, statistics, statistics, -statistics, -statistics]
    assert not none  # the softmax makes its output before the copy
    assert softened == [(0, size), (1, size), (1, 0.0)]

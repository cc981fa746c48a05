"""A GPU that is not there: meta tensors whose operators move a clock, behind the parts of
``torch.cuda`` that are called.

An eager call takes the longer of the host's pace and the kernel; a replayed graph takes its kernels
and a gap each. A kernel takes the longer of its arithmetic and its traffic, after a start. Streams
must be joined before a capture and nothing may synchronise within one, as on a real device.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from types import SimpleNamespace

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

DEVICE = "cuda:0"
START_S, ISSUE_S, GAP_S, LAUNCH_S = 3e-6, 8e-6, 0.5e-6, 4e-6
BYTES_PER_S, LINK_BYTES_PER_S, LINK_S = 3.4e12, 40e9, 9e-6
FLOP_PER_S = {"fp32": 45e12, "tf32": 300e12, torch.bfloat16: 600e12, torch.float16: 600e12}
UUID = "1b2c3d4e-0000-1111-2222-333344445555"


class FakeGpu:
    """Stands in for ``torch.cuda``; what it does not have is the real module's."""

    def __init__(self):
        self.now_s, self.allocated, self.recording, self.set_to, self.replays, self.captures = (
            0.0,
            0,
            None,
            None,
            0,
            0,
        )
        self.joined = True
        self.real = torch.cuda
        fake = self

        class Event:
            def __init__(self, *, enable_timing):
                assert enable_timing

            def record(self):
                self.at = fake.now_s

            def synchronize(self):
                fake.synchronize()

            def elapsed_time(self, other):
                return 1e3 * (other.at - self.at)

        class Stream:
            def wait_stream(self, other):
                fake.joined = self is fake.main and other is not self

        class CUDAGraph:
            kernels_s = 0.0

            def replay(self):
                fake.replays += 1
                fake.now_s += LAUNCH_S + self.kernels_s

        self.Event, self.Stream, self.CUDAGraph = Event, Stream, CUDAGraph
        self.main = self.current = Stream()

    def __getattr__(self, name):
        return getattr(self.real, name)

    is_available = staticmethod(lambda: True)
    device_count = staticmethod(lambda: 1)
    get_device_capability = staticmethod(lambda _device: (9, 0))

    def get_device_properties(self, device):
        assert device == DEVICE
        return SimpleNamespace(
            name="NVIDIA H200",
            multi_processor_count=132,
            total_memory=141 * 10**9,
            major=9,
            minor=0,
            uuid=UUID,
        )

    def set_device(self, device):
        self.set_to = device

    def memory_allocated(self, _device):
        return self.allocated

    def empty_cache(self):
        pass

    def synchronize(self):
        if self.recording is not None:
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")

    def current_stream(self):
        return self.current

    def set_stream(self, stream):
        self.current = stream

    @contextmanager
    def stream(self, _stream):
        yield

    @contextmanager
    def graph(self, graph):
        assert self.joined, "the side stream was not joined before the capture"
        self.captures += 1
        self.recording, before, self.current = 0.0, self.current, self.Stream()
        try:
            yield
            graph.kernels_s, self.current = (
                self.recording,
                before,
            )  # torch restores the stream of captures that succeed alone
        finally:
            self.recording = None

    def run(self, kernel_s):
        """A kernel was issued."""
        if self.recording is not None:
            self.recording += kernel_s + GAP_S
        else:
            self.now_s += max(ISSUE_S, kernel_s)


class Generator(torch.Generator):
    """A generator for a device that is not there."""

    def __new__(cls, device=None):
        del device
        return super().__new__(cls)


class OnMeta(TorchFunctionMode):
    """Makes what is asked for on the GPU on the meta device instead, where there is nothing but
    shapes.
    """

    def __init__(self, gpu):
        super().__init__()
        self.gpu = gpu

    def __torch_function__(self, function, types, arguments=(), options=None):
        options = dict(options or {})
        on_gpu = str(options.get("device")) == DEVICE or any(
            isinstance(a, str) and a == DEVICE for a in arguments
        )
        if function is torch.Tensor.pin_memory:
            return arguments[0]
        if function is torch.Tensor.copy_ and arguments[1].is_meta and not arguments[0].is_meta:
            self.gpu.run(LINK_S + arguments[0].nbytes / LINK_BYTES_PER_S)
            return arguments[0]
        if function is torch.Tensor.item and arguments[0].is_meta:
            return 1.0
        options.pop("pin_memory", None)
        if on_gpu:
            options.pop("generator", None)
            options = {k: torch.device("meta") if k == "device" else v for k, v in options.items()}
            arguments = tuple(
                "meta" if isinstance(a, str) and a == DEVICE else a for a in arguments
            )
        return function(*arguments, **options)


class Clock(TorchDispatchMode):
    """Moves the GPU's clock with every operator on meta tensors."""

    def __init__(self, gpu):
        super().__init__()
        self.gpu = gpu
        self.shapes = {}

    def result(self, function, arguments, options):
        """What an operator gives; the shape that equal operands gave before, where it gives one new
        tensor.
        """
        key = _signature(function, arguments, options)
        if key in self.shapes:
            return torch.empty_strided(**self.shapes[key], device="meta")
        result = function(*arguments, **options)
        if key is not None and isinstance(result, torch.Tensor):
            self.shapes[key] = {
                "size": result.shape,
                "stride": result.stride(),
                "dtype": result.dtype,
            }
        return result

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        result = self.result(function, arguments, options or {})
        outputs = [
            x
            for x in (result if isinstance(result, tuple | list) else (result,))
            if isinstance(x, torch.Tensor)
        ]
        inputs = [x for x in arguments if isinstance(x, torch.Tensor)]
        if function.is_view or not any(x.is_meta for x in outputs):
            return result
        moved = sum(x.nbytes for x in (*inputs, *outputs))
        if inputs and not inputs[0].is_meta:
            self.gpu.run(LINK_S + moved / 2 / LINK_BYTES_PER_S)
            return result
        self.gpu.allocated += sum(x.nbytes for x in outputs)
        self.gpu.run(
            START_S + max(moved / BYTES_PER_S, _flop(function, inputs, outputs) / _rate(outputs[0]))
        )
        return result


def _signature(function, arguments, options):
    """Operator, operands' layouts and other arguments; None where it writes or views an operand, or
    has other operands than tensors without contents.
    """
    if function.is_view or function._schema.is_mutable:
        return None
    parts = []
    for value in (*arguments, *options.values()):
        if isinstance(value, torch.Tensor):
            if not value.is_meta:
                return None
            parts.append((value.shape, value.stride(), value.dtype))
        elif isinstance(value, list | tuple) and any(isinstance(x, torch.Tensor) for x in value):
            return None
        else:
            parts.append(repr(value))
    return (function, *parts, *options)


def _flop(function, inputs, outputs):
    name = function.__name__.partition(".")[0]
    if name in {"mm", "bmm", "addmm"}:
        return 2.0 * outputs[0].numel() * inputs[-1].shape[-2]
    if name == "convolution":
        return 2.0 * outputs[0].numel() * inputs[1].numel() / inputs[1].shape[0]
    return 0.0


def _rate(output):
    if output.dtype in FLOP_PER_S:
        return FLOP_PER_S[output.dtype]
    return FLOP_PER_S["tf32" if torch.backends.cuda.matmul.allow_tf32 else "fp32"]


class NvmlError(Exception):
    """An error of the library."""


def fake_nvml():
    """A library that lists the board under another index than CUDA does: only its identifier finds
    it.
    """

    def by_uuid(uuid):
        if uuid != f"GPU-{UUID}":
            raise NvmlError
        return 3

    def of_board(value):
        def read(handle, *_):
            assert handle == 3, "the handle of another board"
            return value() if callable(value) else value

        return read

    return SimpleNamespace(
        NVMLError=NvmlError,
        NVML_CLOCK_SM=1,
        NVML_CLOCK_MEM=2,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByUUID=by_uuid,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlSystemGetDriverVersion=lambda: "570.1",
        nvmlDeviceGetPowerManagementLimit=of_board(700_000),
        nvmlDeviceGetMaxClockInfo=of_board(1980),
        nvmlDeviceGetTotalEnergyConsumption=of_board(lambda: int(time.perf_counter() * 450e3)),
    )

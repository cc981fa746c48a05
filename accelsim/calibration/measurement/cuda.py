"""What measuring on a CUDA device takes beside a timer: operands past the cache, graphs of many
calls, and TF32.

References: PyTorch, "CUDA semantics" (streams, graphs, TensorFloat-32) and ``torch.cuda.graph``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType

from accelsim.calibration.measurement.timing import Call

#: Operands of all calls of a case together, well past any last-level cache (H200: 50 MB, MI300X:
#: 256 MB).
_ROTATED_BYTES = 512 * 2**20
_FEWEST_COPIES = 2
_MOST_COPIES = 64
#: Calls in one graph: launching a graph takes the host as long as some kernels run.
_GRAPH_CALLS = 32
_WARM_UP_CALLS = 3


def rotated(cuda: ModuleType, device: str, build: Callable[[], Call]) -> list[Call]:
    """Calls with operands of their own, so many that together they exceed the last-level cache.

    Args:
        cuda: ``torch.cuda``.
        device: Its device.
        build: Makes a call on new operands.
    """
    before = cuda.memory_allocated(device)
    calls = [build()]
    call_bytes = max(cuda.memory_allocated(device) - before, 1)
    count = min(max(_FEWEST_COPIES, -(-_ROTATED_BYTES // call_bytes)), _MOST_COPIES)
    return calls + [build() for _ in range(count - 1)]


def captured(
    cuda: ModuleType, calls: Sequence[Call], least_calls: int = _GRAPH_CALLS
) -> tuple[Call, int]:
    """One graph of many calls; its replay and how many calls it makes.

    The calls run on a side stream first, as capturing demands: libraries set themselves up at their
    first call, which a capture does not allow.

    Args:
        cuda: ``torch.cuda``.
        calls: What to capture, cycled through.
        least_calls: Calls in the graph, at least all of them once.

    Raises:
        RuntimeError: If a call cannot be captured.
    """
    count = max(len(calls), least_calls)
    side, main = cuda.Stream(), cuda.current_stream()
    side.wait_stream(main)
    with cuda.stream(side):
        for number in range(_WARM_UP_CALLS):
            calls[number % len(calls)]()
    main.wait_stream(side)
    cuda.synchronize()
    graph = cuda.CUDAGraph()
    try:
        with cuda.graph(graph):
            for number in range(count):
                calls[number % len(calls)]()
    finally:
        cuda.set_stream(main)  # a capture that fails leaves its own stream behind
    replay: Call = graph.replay
    return replay, count


@contextmanager
def tf32_products(torch: ModuleType, allowed: bool) -> Iterator[None]:
    """FP32 products and convolutions in TF32, or not; by default torch allows it for convolutions
    alone.
    """
    switches = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [switch.allow_tf32 for switch in switches]
    try:
        for switch in switches:
            switch.allow_tf32 = allowed
        yield
    finally:
        for switch, value in zip(switches, before, strict=True):
            switch.allow_tf32 = value

"""Memory a run needs: weights, gradients, optimizer state, activations, cache, workspace.

Weights and states follow the precision policy (mixed-precision Adam keeps 16 bytes per parameter:
Rajbhandari 2020, section 3.1). Training activations are the tensors the backward pass keeps;
inference holds a tensor from the row that writes it to the last row that reads it. What the driver,
the process and the allocator take besides is part of what a device has available, not of the run.
"""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from accelsim.dtype import Precision
from accelsim.errors import DoesNotFitError
from accelsim.frozen import frozen
from accelsim.hardware.profile import DeviceProfile, GpuProfile
from accelsim.quantity import size
from accelsim.workloads.graph import FloatArray, IntArray, OperatorGraph
from accelsim.workloads.operator import OperatorKind, Phase
from accelsim.workloads.training import Optimizer, untouched_parameter_count

#: A process's context with its kernels and the libraries' workspaces: estimate, between the 0.4 GiB
#: that nvidia-smi shows of an idle torch process with kernels loaded lazily (CUDA 11.7 and later)
#: and the 1.3 GB of Hugging Face's "Model training anatomy" with all of them loaded.
_CONTEXT_BYTES = 512.0 * 1024**2
#: Share of the rest that the allocator cannot give out, as blocks of other sizes are in the way:
#: estimate; torch's caching allocator leaves about 3 % in plain training (Guo et al., GMLake,
#: ASPLOS 2024), paged key-value blocks less than 4 % (Kwon et al., SOSP 2023).
_FRAGMENTATION_FRACTION = 0.02


@frozen
class MemoryFootprint:
    """Bytes a run holds at its peak, by use."""

    weight_bytes: float
    activation_bytes: float
    gradient_bytes: float = 0.0
    optimizer_bytes: float = 0.0
    kv_cache_bytes: float = 0.0

    @property
    def total_bytes(self) -> float:
        """Sum of all parts."""
        return float(sum(asdict(self).values()))

    def short_bytes(self, capacity_bytes: float) -> float:
        """Bytes missing on a device of that capacity; 0 where it fits."""
        return max(0.0, self.total_bytes - capacity_bytes)


def available_bytes(device: DeviceProfile, utilization_fraction: float = 1.0) -> float:
    """Bytes that a run can allocate on a device.

    Of a GPU: the share of what the driver reports that the engine takes, less its context, less
    what fragmentation loses. Other devices give all they have: their programs are laid out ahead
    of time, or the memory is the host's.

    Args:
        device: The device.
        utilization_fraction: Share of the memory an engine takes (vLLM: `gpu_memory_utilization`,
            0.9 by default, its context included), in (0, 1].
    """
    usable = device.memory_bytes * utilization_fraction
    if not isinstance(device, GpuProfile):
        return usable
    return max(usable - _CONTEXT_BYTES, 0.0) * (1.0 - _FRAGMENTATION_FRACTION)


def memory_short(
    device: DeviceProfile, needed_bytes: float, room_bytes: float, remedy: str
) -> DoesNotFitError:
    """Why a run does not fit, by the one figure that a device's memory has in all answers.

    Args:
        device: The device.
        needed_bytes: What the run needs.
        room_bytes: What it can have; the driver, the allocator and the engine keep the rest.
        remedy: What to do next.
    """
    reserved_bytes, total_bytes = device.memory_bytes - room_bytes, device.memory_bytes
    if reserved_bytes > 0:
        taken = f"The driver, the allocator and the engine take {size(reserved_bytes)} of that."
        remedy = f"{taken} {remedy}"
    return DoesNotFitError(
        device.name, "memory_bytes", needed_bytes + reserved_bytes, total_bytes, remedy
    )


def live_bytes(graph: OperatorGraph) -> FloatArray:
    """Bytes of outputs alive while each row runs, shape (n,).

    Liveness of values: Aho et al., Compilers, 2nd edition, 2006.

    An output lives from the row that writes it to the last row that reads it; outputs nobody reads
    live to the end. Cache writes and views are not told apart.
    """
    change = np.append(graph.write_bytes, 0.0)
    np.subtract.at(change, graph.last_reader + 1, graph.write_bytes)
    return np.cumsum(change)[:-1]


def inference_footprint(
    graph: OperatorGraph, weight_bytes: float, kv_cache_bytes: float = 0.0
) -> MemoryFootprint:
    """Weights, the largest set of live activations, and the cache.

    Key-value cache: Pope et al., MLSys 2023.

    Args:
        graph: Forward (or prefill) rows.
        weight_bytes: Bytes the parameters are stored in.
        kv_cache_bytes: Bytes of the key-value cache at its fullest.
    """
    live = live_bytes(graph)
    input_bytes = float(graph.read_bytes[0]) if len(graph) else 0.0
    return MemoryFootprint(
        weight_bytes, input_bytes + float(live.max(initial=0.0)), kv_cache_bytes=kv_cache_bytes
    )


def transient_bytes(
    forward: OperatorGraph, step: OperatorGraph, block: IntArray | None = None
) -> FloatArray:
    """Bytes that each row of a backward pass holds beyond all that its block keeps, shape (n,); 0
    or less where what it moves is less than what is freed by then.

    Autograd frees what an operator keeps once its gradients are made (PyTorch, "Autograd
    mechanics", saved tensors), those of the last operators first: the early layers of a
    convolutional network have the largest tensors, but no longer what the later ones kept.

    Args:
        forward: Forward rows, with what each keeps.
        step: Rows of the step; a gradient's row has the path of its forward row.
        block: Block of each forward row, side by side, shape (len(forward),); one where None.
    """
    last = {path: row for row, path in enumerate(forward.path)}
    rows = np.array([last.get(path, -1) for path in step.path], dtype=np.int64)
    saved_so_far = forward.saved_bytes.cumsum()
    ends = np.full(len(saved_so_far), len(saved_so_far) - 1)
    if block is not None:
        ends = np.searchsorted(block, block, side="right") - 1
    # nothing where there is no forward row
    freed = np.append(saved_so_far[ends] - saved_so_far, 0.0)[rows]
    moved = step.read_bytes + step.write_bytes
    return np.asarray((moved - freed) * (step.phase == int(Phase.BACKWARD)))


def training_footprint(
    forward: OperatorGraph,
    step: OperatorGraph,
    parameter_count: int,
    precision: Precision,
    rule: Optimizer,
    frozen_bytes: float = 0.0,
) -> MemoryFootprint:
    """Weights, gradients, optimizer states (and master weights), kept activations and the largest
    transient.

    Rajbhandari et al., SC 2020 (ZeRO), section 3.

    Args:
        forward: Forward rows, with what each keeps for the backward pass.
        step: All rows of the step.
        parameter_count: Parameters of the model, or of its adapters.
        precision: Dtypes.
        rule: Update rule.
        frozen_bytes: Bytes of the weights beside which adapters are trained.
    """
    policy = precision.trained
    master = 0.0 if policy.master_weight is None else policy.master_weight.bytes
    updated = int(
        step.dims[step.kind == int(OperatorKind.OPTIMIZER), 0].sum()
    )  # neither frozen nor out of a sparse step
    trained = min(updated + untouched_parameter_count(forward), parameter_count)
    transient = float(transient_bytes(forward, step).max(initial=0.0))
    return MemoryFootprint(
        weight_bytes=frozen_bytes + parameter_count * policy.held_bytes,
        activation_bytes=float(forward.saved_bytes.sum()) + transient,
        gradient_bytes=updated * policy.held_bytes,
        optimizer_bytes=trained * (policy.state_bytes * rule.state_count + master),
    )

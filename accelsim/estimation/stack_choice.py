"""Which software runs a model on a device, how it issues operators, and the layout of convolutions:
what the caller asks for where that exists, else the device's as it is deployed.

A language model that generates tokens runs on an engine that serves it, any other network compiled,
so that devices are compared like with like; eager PyTorch is asked for (``stack="pytorch"`` or
``execution="eager"``), and how networks are trained.
"""

from __future__ import annotations

from accelsim.catalog import stacks as stack_catalog
from accelsim.catalog.stacks import Stack, StackPath
from accelsim.cost.attention_kernels import attention_kernel
from accelsim.cost.gpu import GpuParameters
from accelsim.cost.gpu.generation import generation_of
from accelsim.cost.gpu.machine import GpuMachine
from accelsim.cost.stack import MatrixVector
from accelsim.cost.table import Execution
from accelsim.dtype import Dtype, Precision
from accelsim.errors import InvalidValueError, UnsupportedOperatorError
from accelsim.hardware.profile import DeviceProfile, GpuProfile
from accelsim.plain import Document
from accelsim.workloads.model import Workload
from accelsim.workloads.options import ModelOptions


def choose_stack(
    options: ModelOptions, device: DeviceProfile, mode: str, workload: Workload, policy: Precision
) -> Stack:
    """The stack asked for, or the usual one, if it can run the model so on the device.

    Args:
        options: What is asked for; a way to issue operators is one of PyTorch.
        device: The device.
        mode: Inference or training.
        workload: The model.
        policy: Its formats.

    Raises:
        InvalidValueError: If it runs language models alone, and the model is none.
        UnsupportedOperatorError: If it cannot run on the device, in the mode or in the format.
    """
    if options.stack is not None:
        stack = stack_catalog.stack(options.stack)
    else:
        generates = mode == "inference" and workload.autoregressive
        is_served = generates and not workload.default.target_len and options.execution is None
        stack = stack_catalog.default_stack(device, policy, is_served=is_served)
    _check_device(stack, device)
    if mode not in stack.modes:
        reason = f"stack {stack.name} runs {' and '.join(stack.modes)} alone"
        remedy = "Leave stack out, or choose pytorch."
        raise UnsupportedOperatorError(device.name, mode, reason, remedy)
    if stack.generation_only and not workload.autoregressive:
        allowed = f"a stack that runs {workload.name}: {stack.name} runs language models that "
        remedy = "Choose another stack or precision."
        raise InvalidValueError("stack", stack.name, f"{allowed}generate tokens", remedy)
    if lacking := stack.lacking(policy):
        reason = f"stack {stack.label} has no {lacking}"
        remedy = "Choose another version, stack or precision."
        raise UnsupportedOperatorError(device.name, lacking, reason, remedy)
    return stack


def _check_device(stack: Stack, device: DeviceProfile) -> None:
    if not stack.runs(device):
        names = [n for n in stack_catalog.stack_names() if stack_catalog.stack(n).runs(device)]
        remedy = f"Stacks of this device: {', '.join(names)}."
        reason = f"{stack.title} does not run on it"
        raise UnsupportedOperatorError(device.name, f"stack {stack.name}", reason, remedy)


def choose_execution(
    options: ModelOptions, stack: Stack, device: DeviceProfile, mode: str
) -> Execution:
    """How the stack issues operators, in the mode asked for where it has modes: a stack that is
    named alone in its first, and so a network whose layout is asked for, which compilers choose.

    Raises:
        InvalidValueError: If there is no such mode.
        UnsupportedOperatorError: If it is one of PyTorch and the device's stack is another.
    """
    value, first_path = options.execution, next(iter(stack.paths.values()))
    if value is None:
        is_named = options.stack is not None or options.layout is not None
        path = first_path if is_named else stack_catalog.default_path(stack.paths, mode)
        return Execution(path.launch)
    if value not in list(Execution):
        raise InvalidValueError("execution", value, "one of " + ", ".join(Execution))
    if value == Execution.COMPILED_CALLS and not isinstance(device, GpuProfile):
        value = Execution.COMPILED  # calls take their time on GPUs alone
    if value in stack.paths:
        return Execution(stack.paths[value].launch)
    _check_mode(value, options, stack)
    if value == Execution.COMPILED:  # asked of every device of a comparison
        return Execution(first_path.launch)
    reason = f"that is a mode of pytorch; its usual stack is {stack.name}"
    raise UnsupportedOperatorError(device.name, f"{value} execution", reason, "Leave it out.")


def _check_mode(value: str, options: ModelOptions, stack: Stack) -> None:
    """Refuse a mode that a version is too old for, or that a stack named beside it has not."""
    if value in stack.version.lacks_paths:
        allowed = f"one of {', '.join(stack.paths)}: {stack.label} has no {value} mode"
        raise InvalidValueError("execution", value, allowed, "Choose a newer version.")
    if options.stack is not None:
        allowed = f"no value: it is a mode of pytorch, and {stack.name} has one way to run"
        raise InvalidValueError("execution", value, allowed, "Leave execution out.")


def stack_path(stack: Stack, execution: Execution) -> StackPath:
    """How a stack runs what is issued so."""
    return stack.paths.get(execution.value) or next(iter(stack.paths.values()))


def choose_layout(name: str | None, stack: Stack, execution: Execution) -> str:
    """The layout asked for, or the stack's usual one; empty where the stack chooses.

    Raises:
        InvalidValueError: If the stack has no such layout, or chooses itself.
    """
    layouts = {} if stack_path(stack, execution).lays_out else stack.layouts
    if name is None:
        return next(iter(layouts), "")
    if not layouts:
        who = f"{stack.name} {execution.value}" if stack.layouts else stack.name
        allowed = f"no value: {who} chooses the layout itself"
        raise InvalidValueError("layout", name, allowed, "Leave layout out.")
    if name not in layouts:
        raise InvalidValueError("layout", name, "one of " + ", ".join(layouts))
    return name


def own_kernels(stack: Stack, device: DeviceProfile) -> Document:
    """Fields of `StackEffect` for a stack that brings kernels of its own to a GPU.

    Estimate: a lane's multiply-add is two operations of the stated vector rate.
    """
    if not isinstance(device, GpuProfile):
        return {}
    kernels, effect = stack.own_kernels, _training_kernels(stack, device)
    if kernels is None:
        return effect
    machine = GpuMachine.of(device, GpuParameters.class_wide())
    byte_s, core_s = 1.0 / machine.stream_bytes_per_s, 0.0
    if generation_of(device).is_reference and kernels.core_bytes is not None:
        core_s = 1.0 / (machine.sm_count * machine.clock_hz * kernels.core_bytes)
    weight_s = 2.0 * kernels.operations_per_weight / machine.vector_flop_per_s
    effect["matrix_vector"] = MatrixVector(kernels.rows, weight_s, byte_s, max(byte_s, core_s))
    effect["wide_byte_s"] = byte_s * kernels.activations_in_32_bits
    fp32_sums = device.matrix_fp32_accumulate_flop_per_s.get(Dtype.FP16)
    fp16_sums = device.matrix_flop_per_s.get(Dtype.FP16)
    if kernels.sums_in_16_bits and fp32_sums is not None and fp16_sums is not None:
        effect["sums_ratio"] = fp32_sums.value / fp16_sums.value
    return effect


def _training_kernels(stack: Stack, device: GpuProfile) -> Document:
    """Fields of `StackEffect` for the attention and the casts of a trainer."""
    effect: Document = {}
    architecture, peak = device.architecture, device.matrix_flop_per_s.get(Dtype.BF16)
    name = stack.attention.get(architecture)
    if name is not None and peak is not None:
        count = device.sm_count.value
        effect["attention"] = attention_kernel(name, architecture, peak.value, count)
    if stack.cast_bytes:
        machine = GpuMachine.of(device, GpuParameters.class_wide())
        effect["cast_s"] = stack.cast_bytes / machine.stream_bytes_per_s
    return effect

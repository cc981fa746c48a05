"""From options to a resolved run: names looked up, defaults filled in, every value checked."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Unpack, cast, get_args

from accelsim import catalog
from accelsim.catalog import workloads as workload_catalog
from accelsim.cost.registry import HEAPS
from accelsim.dtype import PRECISIONS, Dtype, Precision
from accelsim.errors import InvalidValueError, UnsupportedOperatorError
from accelsim.estimation.options import ModelOptions, RunKeywords, RunOptions, RunShape, run_options
from accelsim.estimation.power_limit import limited
from accelsim.estimation.run import Mode, Offload, ResolvedRun
from accelsim.estimation.stack_choice import choose_execution, choose_layout, choose_stack
from accelsim.hardware.profile import (
    AsicProfile,
    CpuProfile,
    DeviceProfile,
    FpgaProfile,
    GpuProfile,
)
from accelsim.plain import Document
from accelsim.workloads.model import Workload
from accelsim.workloads.sharding import WHOLE, Shard
from accelsim.workloads.training import optimizer as find_optimizer

if TYPE_CHECKING:
    from torch.nn import Module

    from accelsim.estimation.learned import Learned

#: Options that say nothing of a run: by name the value, and why.
_Unused = dict[str, tuple[object, str]]
#: CPU beside a board that is not this machine's: estimate, a desktop of 2022.
USUAL_HOST = "core-i9-13900k"
#: Recommenders score millions of candidates at once.
LARGEST_BATCH = 2**30
_LARGEST = {
    "batch": LARGEST_BATCH,
    "seq_len": 10_000_000,
    "output_len": 10_000_000,
    "image_size": 16_384,
    "steps": 10_000,
    "images": 1_000,
    "accumulation": 1_048_576,
    "lora_rank": 65_536,
    "document_len": 10_000_000,
}
#: Ways of activation checkpointing.
_RECOMPUTE = ("none", "selective", "full")
#: Precisions tried in order where the caller names none.
_PREFERRED = {
    "inference": ("bf16", "fp16", "int8", "int16", "fp32"),
    "training": ("bf16", "fp16", "fp32"),
}


def resolve(
    workload: str | Path | Workload | Module,
    device: str | DeviceProfile,
    options: RunOptions | None = None,
    **keywords: Unpack[RunKeywords],
) -> ResolvedRun:
    """Look names up, fill defaults in and check every value.

    Args:
        workload: Name, path of a workload file, or a `Workload`.
        device: Name (slices like ``epyc-7763@8vcpu`` too) or a profile.
        options: What runs; defaults where None.
        keywords: Fields of `RunOptions` and of the options it holds, in place of theirs.

    Raises:
        UnknownNameError: If a device, workload, precision or optimizer does not exist.
        InvalidValueError: If a size or choice is out of range.
        UnsupportedOperatorError: If the device cannot train, or has no rate of sparse weights.
    """
    chosen = run_options(options, keywords)
    model = _captured(workload, chosen.mode)
    if not isinstance(model, Workload):
        model = workload_catalog.workload(str(model))
    profile = limited(profile_of(device), chosen.power_limit_w)
    mode = cast("Mode", _choice("mode", chosen.mode, get_args(Mode)))
    _check_used(chosen, model)
    shape, training = chosen.shape, chosen.training
    batch = _size("batch", shape.batch, model.default.batch, 1)
    policy = _precision(chosen, model, profile, mode)
    stack = choose_stack(chosen.model, profile, mode, model, policy)
    execution = choose_execution(chosen.model, stack, profile, mode)
    run = ResolvedRun(
        **({} if profile.joined_count == 1 else _joined(model, profile, mode)),
        workload=model,
        device=profile,
        batch=batch,
        precision=policy,
        mode=mode,
        stack=stack,
        execution=execution,
        seq_len=_sequence("seq_len", shape.seq_len, model.default.seq_len, model),
        output_len=0 if mode == "training" else _output_len(shape.output_len, model),
        image_size=_size("image_size", shape.image_size, model.default.image_size, 0),
        optimizer=find_optimizer(training.optimizer or "adamw"),
        accumulation=_accumulation(training.accumulation, batch),
        recompute=_choice("recompute", training.recompute or "none", _RECOMPUTE),
        lora_rank=_lora_rank(training.lora_rank),
        document_len=_document_len(training.document_len, shape.seq_len, model),
        steps=_size("steps", shape.steps, 1, 1),
        fused_attention=chosen.model.fused_attention and stack.version.fused_attention,
        host=resolve_host(chosen.host),
        tier=chosen.tier,
        sparse_weights=chosen.model.sparse_weights,
        heap=_choice("heap", chosen.heap, HEAPS),
        threads=_threads(chosen.threads, profile),
        layout=choose_layout(chosen.model.layout, stack, execution),
        learned=None if chosen.learned is None else _learned(chosen.learned),
    )
    run = _with_pictures(run, shape.images)
    return run if chosen.offload is None else with_offload(run, chosen.offload)


def profile_of(device: str | DeviceProfile) -> DeviceProfile:
    """The profile of a device that may be named."""
    return catalog.device(device) if isinstance(device, str) else device


def _with_pictures(run: ResolvedRun, images: int | None) -> ResolvedRun:
    """The run with pictures in each prompt: their encoder, and their tokens after those of the
    text.

    Raises:
        InvalidValueError: If the model has no encoder of pictures, or the number is out of range.
    """
    count, name = _size("images", images, 0, 0), run.workload.picture_encoder
    if not count:
        return run
    if name is None:
        allowed = f"no value: {run.workload.name} has no encoder of pictures"
        raise InvalidValueError("images", images, allowed, "Leave images out.")
    encoder = workload_catalog.workload(name)
    tokens = count * encoder.parameters.tokens(run.image_size)
    return replace(run, images=count, picture_encoder=encoder, seq_len=run.seq_len + tokens)


def _joined(workload: Workload, device: DeviceProfile, mode: Mode) -> Document:
    """Fields of one rank of a run on devices that share the model.

    Raises:
        UnsupportedOperatorError: If the model's family is not split over ranks, or in training.
        InvalidValueError: If no node joins the devices.
    """
    from accelsim.catalog.clusters import smallest_joining

    family, reason = workload.family, ""
    if mode == "training":
        reason = "several devices train by a plan: use accelsim train"
    elif family is None or not family.shards:
        reason = "its family is not split over devices"
    if reason:
        raise UnsupportedOperatorError(device.name, workload.name, reason, "Use one device.")
    count = device.joined_count
    return {"shard": Shard(tp=count), "cluster": smallest_joining(device, count)}


def _threads(threads: int | None, device: DeviceProfile) -> int | None:
    """Threads that run: one for each core of a CPU unless chosen; none elsewhere."""
    if not isinstance(device, CpuProfile):
        if threads is None:
            return None
        reason = f"threads = {threads} is an option of CPUs"
        raise UnsupportedOperatorError(device.name, "some threads", reason, "Leave it out.")
    cores = device.core_count.value
    if threads is not None and not 1 <= threads <= cores:
        raise InvalidValueError("threads", threads, f"1 to {cores}, the cores of {device.name}")
    return threads or cores


def _learned(path: str | Path) -> Learned:
    """A profile of measured runs; read where one is named alone."""
    from accelsim.estimation.learned import read_learned

    return read_learned(path)


def _captured(workload: str | Path | Workload | Module, mode: str) -> str | Path | Workload:
    """A torch module as a workload, captured at the inputs it names; anything else as it is."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(workload, torch.nn.Module):
        return workload
    from accelsim.workloads.capture.torch.module import capture

    return capture(workload, training=mode == "training")


def _precision(
    chosen: RunOptions, workload: Workload, device: DeviceProfile, mode: Mode
) -> Precision:
    """The policy asked for, the one the model is published in, or the device's usual one, with the
    formats named beside it.
    """
    options = chosen.model
    published = workload.quantised if mode == "inference" else None
    usual = default_precision(device, mode, generates=workload.autoregressive)
    policy = _on_chip(options.policy(usual if published is None else published), device)
    if mode == "training":
        is_named = options.precision is not None
        _check_trained(policy, device, is_named=is_named, rank=chosen.training.lora_rank)
        policy = policy.beside_adapters
    if options.sparse_weights:
        _check_sparse(device, policy, mode)
    if mode == "training" and options.weight_format is not None:
        remedy = "Leave weight_format out."
        raise InvalidValueError(
            "weight_format", options.weight_format, "no value in training", remedy
        )
    return policy


def _check_trained(
    policy: Precision, device: DeviceProfile, *, is_named: bool, rank: int | None
) -> None:
    """Refuse formats that cannot be trained, and narrow weights without adapters beside them."""
    if policy.trainable or (policy.adapts and rank is not None):
        return
    if not is_named:
        reason = f"{policy.name} is its only arithmetic"
        raise UnsupportedOperatorError(device.name, "training", reason, "Choose another device.")
    narrow = [p.name for p in PRECISIONS.values() if p.adapts and not p.is_file]
    names = ", ".join(p.name for p in PRECISIONS.values() if p.trainable)
    allowed = f"for training one of {names}, or with lora_rank one of {', '.join(narrow)}"
    remedy = "Add lora_rank=16." if policy.adapts else "Choose one of those."
    raise InvalidValueError("precision", policy.name, allowed, remedy)


def _on_chip(policy: Precision, device: DeviceProfile) -> Precision:
    """The policy as a chip runs it: weights it cannot multiply as they are stored are widened.

    llama.cpp multiplies its formats as bytes on CPUs (ggml-cpu's vec_dot kernels) and widens them
    elsewhere.
    """
    widened = policy.on(device.peak_flop_per_s.keys())
    if policy.is_file and isinstance(device, CpuProfile):
        return replace(widened, compute=Dtype.INT8)
    return widened


def _accumulation(count: int | None, batch: int) -> int:
    """Parts of a step's batch; must divide it."""
    parts = _size("accumulation", count, 1, 1)
    if batch % parts:
        raise InvalidValueError("accumulation", parts, f"a divisor of the batch of {batch}")
    return parts


def default_precision(device: DeviceProfile, mode: Mode, *, generates: bool = False) -> Precision:
    """The precision people use on a device: the first of bf16, fp16, int8 its matrix units have,
    else fp32.

    CPUs take bf16 where they have units for it, else fp32: they run a model as it was trained
    unless it is quantised on purpose. Models that generate text run in fp16 on GPUs without matrix
    units whose lanes are as fast in it (Apple, RDNA 2, P100). Training takes no integer format.
    """
    matrix = set(device.matrix_flop_per_s)
    if isinstance(device, CpuProfile):
        return PRECISIONS["bf16" if Dtype.BF16 in matrix else "fp32"]
    for name in _PREFERRED[mode]:
        if PRECISIONS[name].compute in matrix:
            return PRECISIONS[name]
    if generates and mode == "inference" and _has_fast_halves(device):
        return PRECISIONS["fp16"]
    rates = set(device.peak_flop_per_s)
    is_integer = Dtype.FP32 not in rates and Dtype.INT8 in rates
    return PRECISIONS["int8" if is_integer else "fp32"]


def _has_fast_halves(device: DeviceProfile) -> bool:
    """Whether a GPU's lanes are as fast in fp16 as in fp32."""
    rates = device.peak_flop_per_s
    half = rates.get(Dtype.FP16, 0.0)
    return isinstance(device, GpuProfile) and 0.0 < half >= rates.get(Dtype.FP32, 0.0)


def resolve_host(host: str | DeviceProfile | None) -> CpuProfile | GpuProfile | None:
    """The device that runs what another cannot.

    Raises:
        UnknownNameError: If there is no device of that name.
        InvalidValueError: If it is not a CPU or GPU.
    """
    profile = None if host is None else profile_of(host)
    if isinstance(profile, FpgaProfile | AsicProfile):
        raise InvalidValueError("host", profile.name, "a CPU or GPU, which run every operator")
    return profile


def _check_used(options: RunOptions, workload: Workload) -> None:
    """Refuse options that say nothing of such a run, by name.

    Raises:
        InvalidValueError: Naming the first.
    """
    family, shape = workload.family, options.shape
    if options.mode == "training":
        unused = _unused_in_training(options, workload)
    else:
        unused = _unused_in_inference(options, workload)
    if family is not None and not family.image and not shape.images:
        unused["image_size"] = shape.image_size or None, f"{workload.name} takes no images"
    if family is None or not family.steps:
        unused["steps"] = shape.steps, f"{workload.name} takes one pass"
    refuse_unused(unused)


def _unused_in_training(options: RunOptions, workload: Workload) -> _Unused:
    why, training = "training generates nothing", options.training
    unused: _Unused = {
        "output_len": (options.shape.output_len or None, why),
        "kv_format": (options.model.kv_format, why),
        "steps": (options.shape.steps, why),
        "images": (options.shape.images, why),
        "expert_precision": (
            options.model.expert_precision,
            "all products of training have one precision",
        ),
        "offload": (options.offload, "all layers are trained on their devices"),
    }
    if workload.family is None:
        why = "the training step of a captured module is what was captured"
        unused["recompute"] = training.recompute, why
        unused["lora_rank"] = training.lora_rank, why
        unused["document_len"] = training.document_len, why
    return unused


def _unused_in_inference(options: RunOptions, workload: Workload) -> _Unused:
    training, model = asdict(options.training), options.model
    unused: _Unused = {name: (value, "this is inference") for name, value in training.items()}
    if not workload.autoregressive:
        unused["kv_format"] = model.kv_format, f"{workload.name} keeps no keys and values"
    if not workload.has_experts:
        why = f"{workload.name} has no routed experts"
        unused["expert_precision"] = model.expert_precision, why
    if options.shape.images:
        unused["offload"] = options.offload, "with pictures all layers are on the device"
    return unused


def refuse_unused(options: Mapping[str, tuple[object, str]]) -> None:
    """Refuse the first option that has a value.

    Args:
        options: By name the value, None where it is left out, and why it says nothing of a run.

    Raises:
        InvalidValueError: Naming it.
    """
    for name, (value, why) in options.items():
        if value is not None:
            raise InvalidValueError(name, value, f"no value: {why}", f"Leave {name} out.")


def _check_sparse(device: DeviceProfile, precision: Precision, mode: Mode) -> None:
    """Refuse sparse weights where a chip, or its model, has no rate for them."""
    if mode == "training":
        remedy = "Leave sparse_weights out: weights are pruned once they are trained."
        raise InvalidValueError("sparse_weights", True, "dense weights in training", remedy)
    formats = ", ".join(dtype.label for dtype in device.matrix_sparse_flop_per_s)
    if not isinstance(device, AsicProfile):
        reason = "sparse weights are modelled on matrix ASICs alone"
    elif precision.compute in device.matrix_sparse_flop_per_s:
        return
    elif formats:
        reason = f"its sparse rates are for {formats}"
    else:
        reason = "it has no rate for sparse weights"
    remedy = "Leave sparse_weights out, or choose a chip with a sparse rate (trainium2 in bf16)."
    raise UnsupportedOperatorError(
        device.name, f"sparse weights in {precision.name}", reason, remedy
    )


def _choice(field: str, value: object, allowed: Sequence[str]) -> str:
    if value not in allowed:
        raise InvalidValueError(field, value, "one of " + ", ".join(allowed))
    return str(value)


def _size(field: str, value: int | None, default: int, lowest: int) -> int:
    if value is None:
        return max(default, lowest)
    if not lowest <= value <= _LARGEST[field]:
        raise InvalidValueError(field, value, f"an integer from {lowest} to {_LARGEST[field]:,}")
    return int(value)


def _lora_rank(value: int | None) -> int | None:
    return None if value is None else _size("lora_rank", value, 1, 1)


def _document_len(value: int | None, seq_len: int | None, workload: Workload) -> int | None:
    """Tokens of packed documents; at most those of a sequence."""
    if value is None:
        return None
    value = _sequence("document_len", value, 0, workload)
    longest = _sequence("seq_len", seq_len, workload.default.seq_len, workload)
    if value > longest:
        allowed = f"1 to the {longest:,} tokens of a sequence"
        raise InvalidValueError("document_len", value, allowed, "Raise seq_len, or leave it out.")
    return value


def _sequence(field: str, value: int | None, default: int, workload: Workload) -> int:
    family = workload.family
    if value is not None and family is not None and not family.sequence:
        allowed = f"no value: {workload.name} has no sequence"
        raise InvalidValueError(field, value, allowed, f"Leave {field} out.")
    return _size(field, value, default, int(family is not None and family.sequence))


def _output_len(value: int | None, workload: Workload) -> int:
    if value and not workload.autoregressive:
        allowed = f"no value: {workload.name} does not generate tokens"
        raise InvalidValueError("output_len", value, allowed, "Leave output_len out.")
    return _size("output_len", value, workload.output_len if workload.autoregressive else 0, 0)


def with_offload(run: ResolvedRun, value: str | int) -> ResolvedRun:
    """A run some of whose layers lie in host memory; the run itself where none does.

    Args:
        run: A run of inference.
        value: How many layers, or "auto".

    Raises:
        UnsupportedOperatorError: If the device has no memory of its own.
        InvalidValueError: If the count is out of range, or the model has no layers of one kind.
    """
    device, remedy = run.device, "Leave offload out."
    if not isinstance(device, GpuProfile) or device.memory.is_unified:
        reason = "it is no GPU with a memory of its own"
        raise UnsupportedOperatorError(device.name, "offloaded layers", reason, remedy)
    count = int(getattr(run.workload.parameters, "layers", 0) or 0)
    if run.shard != WHOLE or not count:
        why = f"{run.workload.name} is no stack of equal layers on one device"
        raise InvalidValueError("offload", value, f"no value: {why}", remedy)
    layers = _offloaded_layers(value, count)
    if layers == 0:
        return run
    is_shared = run.stack.llama_cpp_files
    host = host_run(run, run.host or catalog.device(USUAL_HOST)) if is_shared else None
    return replace(run, offload=Offload(layers, count, host))


def _offloaded_layers(value: str | int, count: int) -> int | None:
    """Layers of so many that lie in host memory; None for the fewest with which it fits."""
    text = str(value)
    if text == "auto":
        return None
    if text not in map(str, range(count + 1)):
        allowed = f"0 to {count}, the layers of the model, or auto"
        raise InvalidValueError("offload", value, allowed)
    return int(text)


def host_run(run: ResolvedRun, host: DeviceProfile) -> ResolvedRun:
    """The same run on a CPU.

    Raises:
        InvalidValueError: If it is no CPU.
    """
    if not isinstance(host, CpuProfile):
        raise InvalidValueError("host", host.name, "a CPU", "See accelsim devices list.")
    model = ModelOptions(run.precision, stack=run.stack.label, fused_attention=run.fused_attention)
    shape = RunShape(run.batch, run.seq_len, run.output_len)
    return resolve(run.workload, host, RunOptions(model=model, shape=shape, tier=run.tier))

"""A scenario: one model, one device, and how it is run, resolved and checked.

`Scenario.resolve` turns names into profiles and workloads, fills defaults in, and refuses bad
values with the field, the value and the range, before anything is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Final, Literal, cast, get_args

from accelsim import catalog, workload_catalog
from accelsim.cost.registry import HEAPS
from accelsim.cost.table import Execution
from accelsim.errors import InvalidValueError, UnsupportedOperatorError
from accelsim.hardware.profile import AsicProfile, CpuProfile, DeviceProfile, GpuProfile
from accelsim.workloads.dtype import PRECISIONS, Dtype, Precision
from accelsim.workloads.dtype import precision as find_precision
from accelsim.workloads.model import Workload
from accelsim.workloads.training import Optimizer
from accelsim.workloads.training import optimizer as find_optimizer

__all__ = ["Mode", "Scenario", "default_precision", "resolve_host"]

Mode = Literal["inference", "training"]
_LARGEST: Final = {
    "batch": 1_048_576,
    "seq_len": 10_000_000,
    "output_len": 10_000_000,
    "image_size": 16_384,
}
#: Precisions tried in order where the caller names none.
_PREFERRED: Final = {
    "inference": ("bf16", "fp16", "int8", "int16", "fp32"),
    "training": ("bf16", "fp16", "fp32"),
}


@dataclass(frozen=True, eq=False)
class Scenario:
    """Everything one estimate depends on.

    Attributes:
        workload: The model.
        device: The device.
        batch: Samples or sequences per iteration.
        precision: Dtypes.
        mode: Inference or training.
        execution: How operators are issued.
        seq_len: Input tokens per sequence; 0 where the model has none.
        output_len: Generated tokens per sequence; 0 for one forward pass.
        image_size: Side of the image; 0 for the model's own.
        optimizer: Update rule of training.
        fused_attention: Whether attention is one operator.
        host: Device that runs what `device` cannot; None refuses.
        tier: Parameters to predict with: "best", "spec" or "fitted".
        sparse_weights: Whether weights are pruned to the structured sparsity the chip has a rate
            for.
        heap: "default", or "kept" where the memory allocator keeps what is freed; calibrated CPUs.
    """

    workload: Workload
    device: DeviceProfile
    batch: int
    precision: Precision
    mode: Mode
    execution: Execution
    seq_len: int
    output_len: int
    image_size: int
    optimizer: Optimizer
    fused_attention: bool
    host: CpuProfile | GpuProfile | None
    tier: str = "best"
    sparse_weights: bool = False
    heap: str = "default"

    @classmethod
    def resolve(
        cls,
        workload: str | Path | Workload,
        device: str | DeviceProfile,
        *,
        batch: int | None = None,
        precision: str | Precision | None = None,
        mode: str = "inference",
        execution: str | Execution | None = None,
        seq_len: int | None = None,
        output_len: int | None = None,
        image_size: int | None = None,
        optimizer: str = "adamw",
        fused_attention: bool = True,
        host: str | DeviceProfile | None = None,
        tier: str = "best",
        sparse_weights: bool = False,
        heap: str = "default",
    ) -> Scenario:
        """Resolve names and defaults; see `accelsim.estimate` for the arguments.

        Raises:
            UnknownNameError: If a device, workload, precision or optimizer does not exist.
            InvalidValueError: If a size or choice is out of range.
            UnsupportedOperatorError: If training is asked of a device that has integer arithmetic
                alone, or sparse weights of one that has no sparse rate for them.
        """
        model = (
            workload_catalog.workload(str(workload))
            if isinstance(workload, str | Path)
            else workload
        )
        profile = catalog.device(device) if isinstance(device, str) else device
        _check_types(model, profile, precision=precision, optimizer=optimizer)
        run_mode = cast("Mode", _choice("mode", mode, get_args(Mode)))
        dtypes = (
            default_precision(profile, run_mode) if precision is None else find_precision(precision)
        )
        if run_mode == "training" and not dtypes.trainable:
            if precision is None:
                reason = f"{dtypes.name} is its only arithmetic"
                raise UnsupportedOperatorError(
                    profile.name, "training", reason, "Choose another device."
                )
            trainable = ", ".join(p.name for p in PRECISIONS.values() if p.trainable)
            raise InvalidValueError("precision", dtypes.name, f"for training one of {trainable}")
        if sparse_weights:
            _check_sparse(profile, dtypes, run_mode)
        return cls(
            workload=model,
            device=profile,
            batch=_size("batch", batch, model.default.batch, 1),
            precision=dtypes,
            mode=run_mode,
            execution=_execution(execution, profile),
            seq_len=_sequence("seq_len", seq_len, model.default.seq_len, model),
            output_len=0 if run_mode == "training" else _output_len(output_len, model),
            image_size=_size("image_size", image_size, model.default.image_size, 0),
            optimizer=find_optimizer(optimizer),
            fused_attention=fused_attention,
            host=resolve_host(host),
            tier=tier,
            sparse_weights=sparse_weights,
            heap=_choice("heap", heap, HEAPS),
        )


def default_precision(device: DeviceProfile, mode: Mode) -> Precision:
    """The precision people use on a device: the first of bf16, fp16, int8 its matrix units have,
    else fp32.

    Training takes no integer format.
    """
    matrix = set(device.matrix_flop_per_s)
    for name in _PREFERRED[mode]:
        if PRECISIONS[name].compute in matrix:
            return PRECISIONS[name]
    rates = set(device.peak_flop_per_s)
    return (
        PRECISIONS["int8"]
        if Dtype.FP32 not in rates and Dtype.INT8 in rates
        else PRECISIONS["fp32"]
    )


def resolve_host(host: str | DeviceProfile | None) -> CpuProfile | GpuProfile | None:
    """The device that runs what another cannot.

    Raises:
        UnknownNameError: If there is no device of that name.
        InvalidValueError: If it is not a CPU or GPU.
    """
    profile = catalog.device(host) if isinstance(host, str) else host
    if profile is not None and not isinstance(profile, (CpuProfile, GpuProfile)):
        raise InvalidValueError(
            "host", getattr(profile, "name", profile), "a CPU or GPU, which run every operator"
        )
    return profile


def _check_types(workload: object, device: object, *, precision: object, optimizer: object) -> None:
    """Refuse arguments that are neither a name nor what a name stands for, as callers without a
    type checker pass them.
    """
    if not isinstance(workload, Workload):
        raise InvalidValueError("workload", workload, "a name, the path of a file, or a Workload")
    if not isinstance(device, DeviceProfile):
        raise InvalidValueError("device", device, "a name or a device profile")
    if not isinstance(precision, str | Precision | None):
        raise InvalidValueError("precision", precision, "a name or a Precision")
    if not isinstance(optimizer, str):
        raise InvalidValueError("optimizer", optimizer, "a name")


def _check_sparse(device: DeviceProfile, precision: Precision, mode: Mode) -> None:
    """Refuse sparse weights where a chip, or its model, has no rate for them."""
    if mode == "training":
        remedy = "Leave sparse_weights out: weights are pruned once they are trained."
        raise InvalidValueError("sparse_weights", True, "dense weights in training", remedy)
    if precision.compute in device.matrix_sparse_flop_per_s and isinstance(device, AsicProfile):
        return
    formats = ", ".join(dtype.label for dtype in device.matrix_sparse_flop_per_s)
    if not isinstance(device, AsicProfile):
        reason = "sparse weights are modelled on matrix ASICs alone"
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
    if (
        not isinstance(value, Integral)
        or isinstance(value, bool)
        or not lowest <= value <= _LARGEST[field]
    ):
        raise InvalidValueError(field, value, f"an integer from {lowest} to {_LARGEST[field]:,}")
    return int(value)


def _sequence(field: str, value: int | None, default: int, workload: Workload) -> int:
    if value is not None and workload.family is not None and not workload.family.sequence:
        raise InvalidValueError(
            field, value, f"no value: {workload.name} has no sequence", f"Leave {field} out."
        )
    return _size(
        field, value, default, 1 if workload.family is not None and workload.family.sequence else 0
    )


def _output_len(value: int | None, workload: Workload) -> int:
    if value and not workload.autoregressive:
        raise InvalidValueError(
            "output_len",
            value,
            f"no value: {workload.name} does not generate tokens",
            "Leave output_len out.",
        )
    return _size("output_len", value, workload.output_len if workload.autoregressive else 0, 0)


def _execution(value: str | Execution | None, device: DeviceProfile) -> Execution:
    """The caller's choice; else eager on CPUs and GPUs, compiled on devices that only run compiled
    models.
    """
    if value is None:
        return Execution.EAGER if device.device_class in {"cpu", "gpu"} else Execution.COMPILED
    try:
        return Execution(value)
    except ValueError:
        raise InvalidValueError("execution", value, "one of " + ", ".join(Execution)) from None

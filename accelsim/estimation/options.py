"""What runs, how it is trained and what it costs, as the caller says it.

`ModelOptions`, `RunShape` and `TrainingOptions` say what runs, `RunOptions` holds the three, and
`PriceChoice` stands apart, for a price is no property of a run. All are frozen and hashable. Every
field may be left out: `None` is the default of the workload or the device, which
`accelsim.estimation.resolution.resolve` fills in. Functions that take options take the same fields
as keywords, too (`RunKeywords`).
"""

from __future__ import annotations

from dataclasses import field, fields, replace
from pathlib import Path
from typing import TypedDict

from accelsim.arguments import checked
from accelsim.cost.table import Execution
from accelsim.dtype import Precision
from accelsim.economics.device_price import PriceChoice, PriceKeywords
from accelsim.frozen import frozen
from accelsim.hardware.profile import DeviceProfile
from accelsim.option import option
from accelsim.plain import Values
from accelsim.workloads.options import ModelOptions

__all__ = [
    "EstimateKeywords",
    "ModelOptions",
    "PriceChoice",
    "PriceKeywords",
    "RunKeywords",
    "RunOptions",
    "RunShape",
    "TrainingOptions",
    "of_mode",
    "options_and_price",
    "run_options",
]


@checked
@frozen
class RunShape:
    """Sizes of a run; the workload's own where None."""

    batch: int | None = option("Samples or sequences per batch.")
    seq_len: int | None = option("Input tokens per sequence.")
    output_len: int | None = option("Tokens generated per sequence; 0 for one forward pass.")
    image_size: int | None = option("Side of the image, in pixels.")
    steps: int | None = option("Diffusion models: denoising steps of an image.")
    images: int | None = option(
        "Pictures in each prompt of a model that reads them, of --image-size pixels a side: an"
        " encoder's pass, and tokens beside those of the text."
    )


@checked
@frozen
class TrainingOptions:
    """How a model is trained."""

    optimizer: str | None = option(
        "Optimizer of training: sgd, momentum, adam, adamw or lamb. Default: adamw.", metavar="NAME"
    )
    accumulation: int | None = option("Training: microbatches before each optimizer step.")
    recompute: str | None = option(
        "Training: activation checkpointing, none, selective or full.", metavar="HOW"
    )
    lora_rank: int | None = option(
        "Training: rank of adapters that are trained instead of the weights."
    )
    document_len: int | None = option(
        "Training: mean tokens of the documents packed into a sequence; attention"
        " stays within each."
    )


@checked
@frozen
class RunOptions:
    """Everything that decides a run besides the model and the device.

    Attributes:
        mode: "inference" or "training".
        model: How the model is represented and issued.
        shape: Sizes.
        training: How it is trained; of mode "training".
    """

    mode: str = "inference"
    model: ModelOptions = field(default_factory=ModelOptions)
    shape: RunShape = field(default_factory=RunShape)
    training: TrainingOptions = field(default_factory=TrainingOptions)
    host: str | DeviceProfile | None = option(
        "Device that runs operators the other device cannot run; transfers are charged.",
        metavar="DEVICE",
    )
    tier: str = option(
        "Parameters: best (fitted ones if the device has any), spec or fitted.", "best", "TIER"
    )
    power_limit_w: float | None = option(
        "Power limit set on each GPU, in watts, below its own (nvidia-smi -pl).",
        metavar="WATTS",
        flags="--power-limit",
    )
    heap: str = option(
        "Memory allocator of a calibrated CPU: default, or kept, which keeps freed memory.",
        "default",
        "HOW",
    )
    threads: int | None = option("Threads of a CPU. Default: one for each core.")
    offload: str | int | None = option(
        "Layers whose weights lie in host memory, or auto: the fewest with which it fits. "
        "llama.cpp's run on the CPU (--host), others' are read over the link in each pass.",
        metavar="LAYERS|auto",
    )
    learned: str | Path | None = option(
        "Profile of your own runs that corrects the answer (accelsim learn).", metavar="FILE"
    )


class RunKeywords(TypedDict, total=False):
    """Fields of `RunOptions` and of the three it holds, as keywords."""

    mode: str
    precision: str | Precision | None
    weight_format: str | None
    expert_precision: str | None
    kv_format: str | None
    stack: str | None
    execution: str | Execution | None
    layout: str | None
    fused_attention: bool
    sparse_weights: bool
    batch: int | None
    seq_len: int | None
    output_len: int | None
    image_size: int | None
    steps: int | None
    images: int | None
    optimizer: str | None
    accumulation: int | None
    recompute: str | None
    lora_rank: int | None
    document_len: int | None
    host: str | DeviceProfile | None
    tier: str
    power_limit_w: float | None
    heap: str
    threads: int | None
    offload: str | int | None
    learned: str | Path | None


class EstimateKeywords(RunKeywords, PriceKeywords, total=False):
    """Keywords of an estimate: what runs and what it costs."""


def _names(kind: type) -> frozenset[str]:
    return frozenset(f.name for f in fields(kind))


#: Group of `RunOptions` -> fields it has.
_GROUPS = {
    "model": _names(ModelOptions),
    "shape": _names(RunShape),
    "training": _names(TrainingOptions),
}
_OWN_FIELDS = _names(RunOptions) - set(_GROUPS)
_PRICE_FIELDS = _names(PriceChoice)


def run_options(options: RunOptions | None, keywords: Values) -> RunOptions:
    """Options with keywords put in place of their fields.

    Args:
        options: Options to start from; defaults where None.
        keywords: `RunKeywords`.

    Raises:
        TypeError: If a keyword is no field.
    """
    chosen = RunOptions() if options is None else options
    for group, names in _GROUPS.items():
        changes = {name: value for name, value in keywords.items() if name in names}
        if changes:
            chosen = replace(chosen, **{group: replace(getattr(chosen, group), **changes)})
    fields_of_run = {name: value for name, value in keywords.items() if name in _OWN_FIELDS}
    unknown = keywords.keys() - _OWN_FIELDS - set().union(*_GROUPS.values())
    if unknown:
        raise TypeError(f"unexpected keyword argument {min(unknown)!r}")
    return replace(chosen, **fields_of_run)


def of_mode(options: RunOptions, mode: str) -> RunOptions:
    """Options of one mode, without those that say something of the other alone.

    Args:
        options: Options of a comparison of both modes.
        mode: "inference" or "training".
    """
    if mode != "training":
        return replace(options, mode=mode, training=TrainingOptions())
    shape = replace(options.shape, output_len=None)
    model = replace(options.model, expert_precision=None, kv_format=None)
    return replace(options, mode=mode, shape=shape, model=model)


def options_and_price(
    options: RunOptions | None, price: PriceChoice | None, keywords: Values
) -> tuple[RunOptions, PriceChoice]:
    """Options and price with keywords put in place of their fields.

    Args:
        options: Options to start from; defaults where None.
        price: Price to start from; the cheapest on-demand offer where None.
        keywords: `EstimateKeywords`.

    Raises:
        TypeError: If a keyword is no field.
    """
    of_price = {name: value for name, value in keywords.items() if name in _PRICE_FIELDS}
    of_run = {name: value for name, value in keywords.items() if name not in _PRICE_FIELDS}
    paid = replace(PriceChoice() if price is None else price, **of_price)
    return run_options(options, of_run), paid

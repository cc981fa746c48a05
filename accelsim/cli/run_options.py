"""The options of a run and of its price, once for all commands that take them.

A command decorated with `with_run_options` has a parameter ``keywords`` in place of them: the
fields of `RunOptions` and `PriceChoice` as `accelsim.estimate` takes them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, Final, get_type_hints

import typer

__all__ = ["RUN_OPTIONS", "with_run_options"]


def _option(flag: str, kind: Any, default: Any, text: str, metavar: str | None = None) -> Any:
    option = typer.Option(flag, metavar=metavar, help=text)
    return Annotated[kind, option], default


_PRECISIONS = (
    "fp64, fp32, tf32, fp16, bf16, fp8, fp4, int16, int8 or int4 (weights only); "
    "the device's usual if none."
)
#: Keyword of `accelsim.estimate` -> its option and default.
RUN_OPTIONS: Final[dict[str, tuple[Any, Any]]] = {
    "batch": _option("--batch", int | None, None, "Samples or sequences per batch."),
    "precision": _option("--precision", str | None, None, _PRECISIONS, "NAME"),
    "weight_format": _option(
        "--weight-format",
        str | None,
        None,
        "Format of stored weights alone: int8, int4 ...",
        "NAME",
    ),
    "kv_format": _option(
        "--kv", str | None, None, "Format of cached keys and values: fp8, int8 ...", "NAME"
    ),
    "execution": _option(
        "--execution",
        str | None,
        None,
        "How operators are issued: eager, graph or compiled.",
        "HOW",
    ),
    "heap": _option(
        "--heap",
        str,
        "default",
        "Memory of a calibrated CPU: default, or kept where the allocator keeps what is freed.",
        "HOW",
    ),
    "seq_len": _option("--seq-len", int | None, None, "Input tokens per sequence."),
    "output_len": _option(
        "--output-len", int | None, None, "Tokens generated per sequence; 0 for one forward pass."
    ),
    "image_size": _option("--image-size", int | None, None, "Side of the image, in pixels."),
    "optimizer": _option(
        "--optimizer", str, "adamw", "Of training: sgd, momentum, adam, adamw or lamb.", "NAME"
    ),
    "accumulation": _option(
        "--accumulation", int, 1, "Of training: parts of the batch before the optimizer's step."
    ),
    "unfused_attention": _option(
        "--unfused-attention",
        bool,
        False,
        "Attention writes its scores to memory, without a fused kernel.",
    ),
    "sparse_weights": _option(
        "--sparse-weights",
        bool,
        False,
        "Weights have the structured sparsity the chip has a rate for.",
    ),
    "host": _option(
        "--host",
        str | None,
        None,
        "Device that runs operators the other cannot; transfers are charged.",
        "DEVICE",
    ),
    "usd_per_hour": _option(
        "--usd-per-hour", float | None, None, "Own price of the device, instead of an offer's."
    ),
    "provider": _option("--provider", str | None, None, "Only offers of this provider.", "NAME"),
    "region": _option("--region", str | None, None, "Only offers of this region.", "NAME"),
    "kind": _option(
        "--price-kind", str | None, None, "Price kind: on_demand, spot ...; on_demand.", "KIND"
    ),
    "tier": _option(
        "--tier",
        str,
        "best",
        "Parameters: best (fitted where there are any), spec or fitted.",
        "TIER",
    ),
}


def with_run_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a run: they reach it as ``keywords``."""
    own = inspect.signature(command, eval_str=True)
    kept = [p for name, p in own.parameters.items() if name != "keywords"]
    place = next(i for i, name in enumerate(own.parameters) if name == "keywords")
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in RUN_OPTIONS.items()
    ]
    ordered = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in kept]
    parameters = [*ordered[:place], *shared, *ordered[place:]]

    @wraps(command)
    def wrapped(*leading: Any, **values: Any) -> None:
        keywords = {name: values.pop(name) for name in RUN_OPTIONS}
        keywords["fused_attention"] = not keywords.pop("unfused_attention")
        command(*leading, **values, keywords=keywords)

    wrapped.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    hints = get_type_hints(command, include_extras=True)
    hints |= {name: kind for name, (kind, _) in RUN_OPTIONS.items()}
    wrapped.__annotations__ = {p.name: hints[p.name] for p in parameters} | {"return": None}
    return wrapped

"""Values of ``accelsim serve`` that have parts: times, pools, policies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, TypeVar

from accelsim.errors import InvalidValueError

if TYPE_CHECKING:
    from accelsim.serving.options import (
        Adapters,
        PoolOptions,
        PrefillOptions,
        Speculation,
    )
    from accelsim.serving.replicas.autoscaling import ScalingPolicy
    from accelsim.serving.replicas.outages import OutagePolicy

_UNITS_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
T = TypeVar("T")


def seconds(field: str, text: str | None) -> float | None:
    """A time with its unit: 500ms, 2s.

    Raises:
        InvalidValueError: If it is none.
    """
    return None if text is None else _time_s(field, text)


def _time_s(field: str, text: str) -> float:
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    try:
        return float(digits) * _UNITS_S[text[len(digits) :]]
    except (ValueError, KeyError):
        allowed = "a time with its unit, such as 500ms or 2s"
        raise InvalidValueError(field, text, allowed) from None


def gigabytes(field: str, text: str | None) -> float:
    """Bytes of a size in gigabytes: 64GB; 0 where there is none.

    Raises:
        InvalidValueError: If it is no size.
    """
    if text is None:
        return 0.0
    digits = text.upper().removesuffix("GB")
    return 1e9 * _parsed(field, text, "a size in gigabytes, such as 64GB", lambda: float(digits))


def prefill(device: str | None, replicas: int, tp: int, link: str | None) -> PrefillOptions | None:
    """Replicas that compute prompts alone; None without their device.

    Raises:
        InvalidValueError: If a count is out of range, or a link stands without a device.
    """
    from accelsim.serving.options import PrefillOptions

    if device is None:
        if link is not None:
            raise InvalidValueError("kv_link", link, "no value without --prefill-device")
        return None
    options = PrefillOptions(device, replicas, tp)
    return options if link is None else PrefillOptions(device, replicas, tp, link)


def pool(text: str) -> PoolOptions:
    """A pool as ``device=l4,replicas=4,model=llama-3.2-1b,share=0.3``.

    Raises:
        InvalidValueError: If a part is none of a pool's.
    """
    from accelsim.serving.options import PoolOptions

    names = [one.name.removesuffix("_fraction") for one in fields(PoolOptions)]
    form = "key=value pairs with device, and any of " + ", ".join(names[1:])
    parts = dict(part.partition("=")[::2] for part in text.split(","))
    if "device" not in parts or not set(parts) <= set(names):
        raise InvalidValueError("pool", text, form)

    def made() -> PoolOptions:
        return PoolOptions(
            parts["device"],
            replicas=int(parts.get("replicas", 1)),
            model=parts.get("model"),
            share_fraction=float(parts["share"]) if "share" in parts else None,
            tp=int(parts.get("tp", 1)),
            engine=parts.get("engine"),
        )

    return _parsed("pool", text, form, made)


def autoscale(text: str | None) -> ScalingPolicy | None:
    """A policy as ``utilisation:0.7`` or ``queue:8:1-16``; the range is that of the replicas.

    Raises:
        InvalidValueError: If it is none.
    """
    from accelsim.serving.replicas.autoscaling import ScalingPolicy

    if text is None:
        return None
    form = "METRIC:TARGET or METRIC:TARGET:FEWEST-MOST, such as queue:8:1-16"
    metric, _, rest = text.partition(":")
    target, _, span = rest.partition(":")

    def made() -> ScalingPolicy:
        if not span:
            return ScalingPolicy(metric, float(target))
        least, most = (int(end) for end in span.split("-"))
        return ScalingPolicy(metric, float(target), least, most)

    return _parsed("autoscale", text, form, made)


def outages(failures: str | None, spot: str | None) -> OutagePolicy | None:
    """Failures as a mean time between them (``500h``), or losses of spot replicas as one with the
    notice they get (``6h`` or ``6h:30s``; two minutes where none is given).

    Raises:
        InvalidValueError: If a time is none, or both are given.
    """
    from accelsim.serving.replicas.outages import OutagePolicy

    if failures is not None and spot is not None:
        raise InvalidValueError("spot", spot, "no value beside --failures")
    if failures is not None:
        return OutagePolicy(_time_s("failures", failures))
    if spot is None:
        return None
    between, _, notice = spot.partition(":")
    return OutagePolicy(_time_s("spot", between), _time_s("spot", notice or "2min"), is_spot=True)


def speculation(text: str | None) -> Speculation | None:
    """Speculative decoding as ``4:0.8`` or ``4:0.8:llama-3.2-1b``.

    Raises:
        InvalidValueError: If it is none.
    """
    from accelsim.serving.options import Speculation

    if text is None:
        return None
    form = "TOKENS:ACCEPTANCE or TOKENS:ACCEPTANCE:DRAFT_MODEL, such as 4:0.8:llama-3.2-1b"
    tokens, _, rest = text.partition(":")
    share, _, draft = rest.partition(":")

    def made() -> Speculation:
        return Speculation(int(tokens), float(share), draft or None)

    return _parsed("speculate", text, form, made)


def adapters(text: str | None) -> Adapters | None:
    """Adapters as ``8`` or ``8:32``, their number and rank.

    Raises:
        InvalidValueError: If it is none.
    """
    from accelsim.serving.options import Adapters

    if text is None:
        return None
    count, _, rank = text.partition(":")

    def made() -> Adapters:
        return Adapters(int(count), int(rank or 16))

    return _parsed("adapters", text, "NUMBER or NUMBER:RANK, such as 8:32", made)


def _parsed(field: str, text: str, form: str, make: Callable[[], T]) -> T:
    """What `make` makes; a refusal that names the form where the text has another."""
    try:
        return make()
    except InvalidValueError:
        raise
    except ValueError:
        raise InvalidValueError(field, text, form) from None

"""What an estimate rests on and what its like was validated on, in a sentence, from the evidence
that ships: the lines of the accuracy report that a sentence may quote, in a file of their own.

The sentence says what the parameters come from, then how far predictions at the same tier were from
measurements: of whole models of the same kind on the same device where there are any, else of other
models on it, else of its single operators, else of whole models on other devices of its class,
whose medians and 90th percentiles are then given as ranges. Every figure is one of the report's
own; none is put together from several.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np

from accelsim.cost.fitted import calibration_folders, fitted_parameters
from accelsim.datafile import data_root, read_json
from accelsim.errors import InputError

__all__ = ["EVIDENCE_NAME", "Evidence", "evidence", "quotable", "shipped_evidence"]

#: File beside the accuracy report, written with it.
EVIDENCE_NAME: Final = "EVIDENCE.json"
_MAX_BYTES: Final = 20_000_000
#: Suites whose rows are whole runs of models, in the order in which they speak of transformers and
#: of other networks.
_TRANSFORMERS: Final = ("gpu-models", "mlperf-inference", "cnn-gpus", "tpu-v1", "eyeriss")
_CONVOLUTIONS: Final = ("cnn-gpus", "mlperf-inference", "gpu-models", "tpu-v1", "eyeriss")
_OPERATORS: Final = ("gpu-operators", "silicon-kernels")
#: Its rows are of many boards with an overlay processor, which is what estimates of FPGAs assume.
_OVERLAYS: Final = "dpu"
_BY_LAYERS: Final = "single layers"
_BY_ENGINES: Final = " engines"
#: Beginnings of the names of models in suites that hold several kinds.
_SIMILAR: Final = {True: ("resnet", "retinanet", "ssd", "3d-unet"), False: ("bert", "gpt", "llama")}
_NOUNS: Final = {"tpu-v1": "figure", "eyeriss": "figure", **dict.fromkeys(_OPERATORS, "operator")}
_CLASSES: Final = ("cpu", "gpu", "fpga", "asic")
_SHOWN_BOARDS: Final = 3
#: Where the figures of a calibrated machine come from.
_CHECK: Final = "calibrate check"
#: What a sentence takes from a suite or a group.
_QUOTED_OF_ALL: Final = ("title", "rows_answered", "median_ape_fraction", "p90_ape_fraction")
_QUOTED: Final = (
    *("device", "profile", "operator", "model", "tier", "is_view"),
    *_QUOTED_OF_ALL[1:],
)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of predictions like this one.

    Attributes:
        basis: Where the parameters come from.
        measured_rows: Measurements of this device they were fitted to; 0 at tier `spec`.
        scope: "this device", "other devices", "overlays" (boards with an overlay processor) or
            "none".
        suite: Suite of the figures, or "calibrate check" on a calibrated machine; None where the
            scope is "none".
        rows: Rows behind them.
        devices: Devices behind them.
        median_ape_fraction: Least and greatest median error of a device.
        p90_ape_fraction: Least and greatest 90th percentile of a device.
        sentence: All of it in words.
    """

    basis: str
    measured_rows: int
    scope: str = "none"
    suite: str | None = None
    rows: int = 0
    devices: int = 0
    median_ape_fraction: tuple[float, float] | None = None
    p90_ape_fraction: tuple[float, float] | None = None
    sentence: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        values = asdict(self).items()
        return {name: list(v) if isinstance(v, tuple) else v for name, v in values}


@lru_cache(maxsize=1)
def shipped_evidence() -> Mapping[str, Any]:
    """What `quotable` kept of the accuracy report on the bulk tables; without suites where the file
    is missing.
    """
    path = data_root() / "calibration" / EVIDENCE_NAME
    return read_json(path, max_bytes=_MAX_BYTES) if path.is_file() else {"suites": {}}


def quotable(report: Mapping[str, Any]) -> dict[str, Any]:
    """The suites, groups and fields of an accuracy report that a sentence may quote.

    Args:
        report: Result of `accelsim.validation.scoreboard_dict`.

    Returns:
        A smaller report of the same form, on which every sentence is the same.
    """
    names = (*_TRANSFORMERS, *_OPERATORS, _OVERLAYS)
    suites = {name: report["suites"][name] for name in names if name in report["suites"]}
    return {"suites": {name: _quoted(name, suite) for name, suite in suites.items()}}


def _quoted(name: str, suite: Mapping[str, Any]) -> dict[str, Any]:
    answered = [group for group in suite["groups"] if group["rows_answered"]]
    chosen = answered
    if name != _OVERLAYS:
        of_device: dict[tuple[str, str], list[Group]] = {}
        for group in answered:
            if group.get("profile"):
                of_device.setdefault((group["tier"], _base(group["profile"])), []).append(group)
        chosen = []
        for groups in of_device.values():
            similar = [_similar(groups, names) for names in _SIMILAR.values()]
            kept = [id(group) for some in (groups, *similar) for group in _totals(some)]
            chosen += [group for group in groups if id(group) in kept]
    groups = [
        {key: group[key] for key in _QUOTED if group.get(key) is not None} for group in chosen
    ]
    return {key: suite[key] for key in _QUOTED_OF_ALL if key in suite} | {"groups": groups}


@lru_cache(maxsize=256)
def evidence(
    device: str,
    device_class: str,
    tier: str,
    relatives: tuple[str, ...] = (),
    *,
    is_convolutional: bool = False,
) -> Evidence:
    """What an estimate rests on, from the shipped report.

    Args:
        device: Catalogue name, with or without a slice.
        device_class: "cpu", "gpu", "fpga" or "asic".
        tier: Of the estimate.
        relatives: Boards whose surfaces stand for the device's own.
        is_convolutional: Whether convolutions take most of the time.
    """
    if device == "local/cpu" and tier != "spec":
        own = _own_check(*_basis(device, tier, relatives))
        if own is not None:
            return own
    return _evidence(
        shipped_evidence(), device, device_class, tier, relatives, is_convolutional=is_convolutional
    )


def _own_check(rows: int, basis: str) -> Evidence | None:
    """What ``accelsim calibrate check`` found on this machine; None where it has not checked
    today's predictions.
    """
    folder = calibration_folders()[0]
    try:
        frozen, found = (
            read_json(folder / name, max_bytes=_MAX_BYTES)
            for name in ("frozen.json", "results.json")
        )
        errors = [
            abs(row["predicted_s"] / row["measured_s"] - 1.0)
            for row in found["results"]
            if row["measured_s"] and row["threads"] and found["frozen_hash"] == frozen["hash"]
        ]
    except (InputError, KeyError, TypeError):
        return None
    if not errors:
        return None
    median, p90 = (float(x) for x in np.quantile(errors, (0.5, 0.9)))
    what = _plural("whole-model run", len(errors))
    words = (
        f"{what} on it {'was' if len(errors) == 1 else 'were'} within {_range([median])} "
        f"(median), {_range([p90])} (p90)"
    )
    sentence = f"{basis}; {words} [accelsim calibrate check]"
    return Evidence(
        basis, rows, "this device", _CHECK, len(errors), 1, (median, median), (p90, p90), sentence
    )


def _evidence(
    report: Mapping[str, Any],
    device: str,
    device_class: str,
    tier: str,
    relatives: tuple[str, ...],
    *,
    is_convolutional: bool,
) -> Evidence:
    base = device.partition("@")[0]
    rows, basis = _basis(base, tier, relatives)
    if device_class == "fpga" and tier != "spec":
        basis = f"fitted on published throughput of DPUs, Vitis AI {_overlay_releases(base)}"
    order = _CONVOLUTIONS if is_convolutional else _TRANSFORMERS
    groups = list(_groups(report, tier))
    if device_class == "fpga":
        found = _on_overlays(report, base, tier)
    else:
        found = _on_device(groups, base, order, _SIMILAR[is_convolutional])
        found = found or _on_others(groups, base, device_class, order)
    if found is None:
        return Evidence(basis, rows, sentence=f"{basis}; nothing of its kind was measured")
    scope, suite, chosen = found
    medians, p90s = (
        [group[name] for group in chosen] for name in ("median_ape_fraction", "p90_ape_fraction")
    )
    count = sum(group["rows_answered"] for group in chosen)
    devices = len({_base(group.get("profile") or "") for group in chosen})
    what = _plural(_NOUNS.get(suite, "whole-model run"), count)
    others = f"on {_plural(f'other {device_class.upper()}', devices)} at this tier"
    where = {"this device": "on it", "overlays": "on boards with a DPU"}.get(scope, others)
    model = str(chosen[0].get("model") or "all") if len(chosen) == 1 else "all"
    title = report["suites"][suite].get("title", "")
    source = ": ".join(filter(None, (suite if model == "all" else f"{suite}, {model}", title)))
    verb = "was" if count == 1 else "were"
    words = (
        f"{what} {where} {verb} within {_range(medians)} (median), {_range(p90s)} (p90) [{source}]"
    )
    ranges = (min(medians), max(medians)), (min(p90s), max(p90s))
    return Evidence(basis, rows, scope, suite, count, devices, *ranges, f"{basis}; {words}")


def _basis(device: str, tier: str, relatives: tuple[str, ...]) -> tuple[int, str]:
    """Measured rows of the device behind the parameters, and where these come from."""
    overlay = None if tier == "spec" else fitted_parameters(device)
    if overlay is not None and overlay.rows:
        return overlay.rows, f"fitted on {overlay.rows:,} measurements of this device"
    if tier != "spec":
        return 0, "fitted to measurements of this device"
    if not relatives:
        return 0, "data sheet and class-wide parameters"
    others = " and others" if len(relatives) > _SHOWN_BOARDS else ""
    shown = ", ".join(relatives[:_SHOWN_BOARDS])
    return 0, f"class-wide parameters with the kernel surfaces of {shown}{others}"


Group = Mapping[str, Any]


def _groups(report: Mapping[str, Any], tier: str) -> Iterable[tuple[str, Group]]:
    """Groups that were answered, with their suite: of tier `spec`, or of devices' own overlays."""
    for suite, entry in report["suites"].items():
        for group in entry["groups"]:
            is_alike = (group["tier"] == "spec") == (tier == "spec")
            if group["rows_answered"] and is_alike and group.get("profile"):
                yield suite, group


def _totals(groups: Iterable[Group]) -> list[Group]:
    """Of one device in one suite: its view of all groups, or the one group it has; the largest
    where there are several.
    """
    listed = list(groups)
    whole = [g for g in listed if "all" in (g.get("model"), g.get("operator"))]
    single = [g for g in listed if not g.get("is_view")]
    return sorted(whole or single, key=lambda group: -int(group["rows_answered"]))[:1]


def _similar(groups: Iterable[Group], beginnings: tuple[str, ...]) -> list[Group]:
    """Groups of models whose names begin so."""
    return [group for group in groups if str(group.get("model", "")).lower().startswith(beginnings)]


def _on_device(
    groups: list[tuple[str, Group]], device: str, order: tuple[str, ...], similar: tuple[str, ...]
) -> tuple[str, str, list[Group]] | None:
    for suite in (*order, *_OPERATORS):
        own = [
            group for name, group in groups if name == suite and _base(group["profile"]) == device
        ]
        alike = _similar(own, similar)
        chosen = _totals(alike if suite == "mlperf-inference" and alike else own)
        if chosen:
            return "this device", suite, chosen
    return None


def _has_engines(device: str) -> bool:
    """Whether a board takes the rates of batch engines, which are common to all releases."""
    from accelsim.cost.fpga.network_rates import shipped_rates

    return any(device in engine.boards for engine in shipped_rates().engines.values())


def _overlay_releases(device: str) -> str:
    """Releases whose throughput the rates of a board's overlay were fitted to."""
    from accelsim.cost.fpga.network_rates import shipped_rates

    return "1.2 to 3.0" if _has_engines(device) else shipped_rates().newest


def _on_overlays(
    report: Mapping[str, Any], device: str, tier: str
) -> tuple[str, str, list[Group]] | None:
    """All rows of the suite; at tier `fitted` those predicted as the board is: by layers on one
    core or by batch engines.
    """
    entry = report["suites"].get(_OVERLAYS)
    if not entry or not entry["rows_answered"]:
        return None
    groups = entry["groups"] if tier != "spec" else []
    answered = [group for group in groups if group["rows_answered"]]
    if _has_engines(device):
        own = [group for group in answered if str(group.get("model", "")).endswith(_BY_ENGINES)]
    else:
        ways = (_overlay_releases(device), _BY_LAYERS)
        own = [group for group in answered if (group.get("device"), group.get("model")) == ways]
    return "overlays", _OVERLAYS, own or [entry]


def _on_others(
    groups: list[tuple[str, Group]], device: str, device_class: str, order: tuple[str, ...]
) -> tuple[str, str, list[Group]] | None:
    for suite in order:
        by_device: dict[str, list[Group]] = {}
        for name, group in groups:
            profile = _base(group["profile"])
            if name == suite and profile != device and _class_of(profile) == device_class:
                by_device.setdefault(profile, []).append(group)
        chosen = [group for own in by_device.values() for group in _totals(own)]
        if chosen:
            return "other devices", suite, chosen
    return None


@lru_cache(maxsize=256)
def _class_of(profile: str) -> str:
    """Class of a profile, by its folder."""
    folder = data_root() / "device_profiles"
    return next((name for name in _CLASSES if (folder / name / f"{profile}.yaml").is_file()), "")


def _base(name: str) -> str:
    return name.partition("@")[0]


def _plural(noun: str, count: int) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def _range(values: list[float]) -> str:
    low, high = (f"{100 * edge:.0f}" for edge in (min(values), max(values)))
    return f"{low} %" if low == high else f"{low} to {high} %"

"""What an estimate rests on, how far runs like it were from measurements, and how wide its interval
must therefore be: from the residuals of the scoreboard's whole-model runs, which ship.

A run is like another of the same mode, number format and kind of model (`Setting`). The sentence
says what the parameters come from, then how far runs like it on the same device were predicted, or,
where none was measured there, those on other devices of its class, as ranges, or that there are
none. No interval is narrower than the residuals of its class's runs of its setting; where fewer
than `LEAST_ROWS` of `_LEAST_SYSTEMS` systems (boards, models or engines) were measured, nor than
those of its mode and kind of model, of its mode, or of its class, and the sentence says so. Runs of
few systems say less of the next one, which the interval makes up for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import cache, lru_cache

import numpy as np

from accelsim.confidence.quantiles import small_sample_ratio
from accelsim.cost.fitted import calibration_folders, fitted_parameters
from accelsim.cost.table import ParameterTier
from accelsim.errors import InputError
from accelsim.estimation.likeness import Setting
from accelsim.files.datafile import data_root, read_json
from accelsim.frozen import frozen
from accelsim.hardware.profile import DeviceProfile
from accelsim.plain import Document, Values

#: File beside the accuracy report, written with it.
EVIDENCE_NAME = "EVIDENCE.json"
_MAX_BYTES = 1_000_000
#: Runs that say something of a spread, and systems that they are of.
LEAST_ROWS = 5
_LEAST_SYSTEMS = 5
#: Median error from which on a device's figures decide nothing without a word.
FAR_APE_FRACTION = 0.4
#: Spread of ln(metered / predicted power) of a board: nine of ten rows of the scoreboard lie within
#: 43 % on the B200, 33 % on the H100 and 29 % in training (suites serving-energy, training-power).
POWER_LOG_SIGMA = 0.35
_SHOWN_BOARDS = 3
#: Where the figures of a calibrated machine come from.
_CHECK = "calibrate check"


@frozen
class Evidence:
    """What is known of predictions like this one.

    Attributes:
        basis: Where the parameters come from.
        measured_rows: Measurements of this device they were fitted to; 0 at tier `spec`.
        scope: "this device", "other devices", "overlays" (boards with an overlay processor) or
            "none".
        suite: Suites of the figures, or "calibrate check" on a calibrated machine; None where the
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

    @property
    def is_far(self) -> bool:
        """Whether runs like it were more than `FAR_APE_FRACTION` off in the median."""
        median = self.median_ape_fraction
        return median is not None and sum(median) / 2 > FAR_APE_FRACTION

    @property
    def warnings(self) -> tuple[str, ...]:
        """A warning where runs like it are far off."""
        if not self.is_far or self.median_ape_fraction is None:
            return ()
        off = _range(*self.median_ape_fraction)
        return (f"measured runs like this one were {off} off (median): do not choose by it alone",)

    def to_dict(self) -> Document:
        """Plain values, ready for JSON."""
        values = asdict(self).items()
        return {name: list(v) if isinstance(v, tuple) else v for name, v in values}


@cache
def shipped_evidence() -> Values:
    """Runs and spreads that `accelsim.scoreboard.evidence_dict` made of the scoreboard; none where
    the file is missing.
    """
    path = data_root() / "calibration" / EVIDENCE_NAME
    empty: Values = {"runs": [], "spreads": {}}
    return read_json(path, max_bytes=_MAX_BYTES) if path.is_file() else empty


def residual_places(device_class: str, setting: Setting) -> tuple[str, ...]:
    """Keys of spreads, from a class's runs of a setting to all runs of the class."""
    mode, model = setting.mode, setting.model
    return (
        f"{device_class} {setting}",
        f"{device_class} {mode} * {model}",
        f"{device_class} {mode} * *",
        f"{device_class} * * *",
    )


def _has_own_rows(device_class: str, tier: str) -> bool:
    """Whether intervals of a device come from its own rows alone: calibrated CPUs, overlays of
    FPGAs.
    """
    return tier != "spec" and device_class in {"cpu", "fpga"}


def least_log_sigma(
    device: DeviceProfile, tier: ParameterTier, setting: Setting, spreads: Values | None = None
) -> float:
    """Least spread of ln(true / predicted) of a run: of measured runs like it, and of the operators
    that a calibration of the device was tested on.

    Intervals of calibrated CPUs and of overlays of FPGAs come from their own rows alone: the check
    of a calibration measures whole networks, and rates of overlays are fitted to them.

    Args:
        device: Profile.
        tier: Of its parameters.
        setting: Of the run.
        spreads: As in `residual_log_sigma`.
    """
    overlay = None if tier is ParameterTier.SPEC else fitted_parameters(device.name)
    held_out = overlay.held_out.log_sigma if overlay is not None and overlay.held_out else 0.0
    if _has_own_rows(device.device_class, tier):
        return held_out
    return max(held_out, residual_log_sigma(str(device.device_class), setting, spreads))


def residual_log_sigma(device_class: str, setting: Setting, spreads: Values | None = None) -> float:
    """Spread of ln(measured / predicted) of the class's runs like one; 0 where none was measured.

    A group of few rows or systems widens the spread of the next larger group, it does not narrow
    it. Nor is it narrower than what any group with its small-sample correction says of one more
    system.

    Args:
        device_class: Class of the device.
        setting: Of the run.
        spreads: Of measured runs, by `residual_places`; those that ship where None.
    """
    spreads = shipped_evidence()["spreads"] if spreads is None else spreads
    groups = [spreads[key] for key in residual_places(device_class, setting) if key in spreads]
    enough = _enough(groups)
    measured = [float(group["log_sigma"]) for group in groups[: enough + 1]]
    of_others = [
        group["log_sigma"] * small_sample_ratio(group["origins"])
        for group in groups
        if group["origins"] > 1
    ]
    return max(0.0, *measured, min(of_others, default=0.0))


def _enough(groups: Sequence[Values]) -> int:
    """Place of the nearest group with enough rows and systems; of the largest where none has."""
    return next(
        (
            index
            for index, group in enumerate(groups)
            if group["rows"] >= LEAST_ROWS and group["origins"] >= _LEAST_SYSTEMS
        ),
        len(groups) - 1,
    )


def _interval_basis(device_class: str, setting: Setting) -> str:
    """Which larger group an interval is taken from, in words; empty where the nearest will do."""
    spreads = shipped_evidence()["spreads"]
    keys = [key for key in residual_places(device_class, setting) if key in spreads]
    enough = _enough([spreads[key] for key in keys])
    if enough <= 0:
        return ""
    near, far = spreads[keys[0]], spreads[keys[enough]]
    _, mode, _, model = keys[enough].split()
    kind = " ".join(word.replace("-", " ") for word in (mode, model) if word != "*") or "all"
    return (
        f"; those measured are of {_plural('system', near['origins'])}, so the interval is no "
        f"narrower than that of {kind} runs on {far['origins']}"
    )


@lru_cache(maxsize=256)
def evidence(
    device: str, device_class: str, tier: str, relatives: tuple[str, ...], setting: Setting
) -> Evidence:
    """What an estimate rests on, from the shipped residuals.

    Args:
        device: Catalogue name, with or without a slice.
        device_class: "cpu", "gpu", "fpga" or "asic".
        tier: Of the estimate.
        relatives: Boards whose surfaces stand for the device's own.
        setting: Of the run.
    """
    base = device.partition("@")[0]
    rows, basis = _basis(base, tier, relatives)
    if device_class == "fpga" and tier != "spec":
        basis = f"fitted on published throughput of DPUs, Vitis AI {_overlay_releases(base)}"
    if tier != "spec":
        calibrated = _own_check(rows, basis) if base == "local/cpu" else None
        calibrated = calibrated or _own_operators(base, rows, basis)
        if calibrated is not None:
            return calibrated
    nearest = _nearest(base, device_class, basis, rows, setting)
    if _has_own_rows(device_class, tier) or nearest.scope == "none":
        return nearest
    return replace(nearest, sentence=nearest.sentence + _interval_basis(device_class, setting))


def _nearest(device: str, device_class: str, basis: str, rows: int, setting: Setting) -> Evidence:
    """Runs like one on a device, else on others of its class."""
    alike = [
        run
        for run in shipped_evidence()["runs"]
        if run["class"] == device_class and run["setting"] == str(setting)
    ]
    if device_class == "fpga" and alike:  # the suite's rows are of many boards with an overlay
        return _of_runs(basis, rows, alike, "overlays", f"{_count(alike)} on boards with a DPU")
    mine = [run for run in alike if run["profile"] == device]
    if mine:
        return _of_runs(basis, rows, mine, "this device", f"{_count(mine)} like it on it")
    none = f"no run like it ({setting.words}) was measured on it"
    if not alike:
        return Evidence(
            basis, rows, sentence=f"{basis}; {none} or any other {device_class.upper()}"
        )
    boards = len({run["profile"] for run in alike})
    others = f"on {_plural(f'other {device_class.upper()}', boards)}"
    return _of_runs(basis, rows, alike, "other devices", f"{none}; {_count(alike)} {others}")


def _overlay_releases(device: str) -> str:
    """Releases whose throughput the rates of a board's overlay were fitted to; those of batch
    engines are common to all.
    """
    from accelsim.cost.fpga.network_rates import shipped_rates

    rates = shipped_rates()
    has_engines = any(device in engine.boards for engine in rates.engines.values())
    return "1.2 to 3.0" if has_engines else rates.newest


Runs = list[Values]


def _count(runs: Runs) -> str:
    return _plural("whole-model run", sum(run["rows"] for run in runs))


def _of_runs(basis: str, measured_rows: int, runs: Runs, scope: str, subject: str) -> Evidence:
    medians, p90s = ([run[name] for run in runs] for name in ("median", "p90"))
    count = sum(run["rows"] for run in runs)
    suites = ", ".join(dict.fromkeys(run["suite"] for run in runs))
    verb = "was" if count == 1 else "were"
    if len(runs) == 1:
        errors = _within(medians[0], p90s[0])
    else:
        errors = f"off by {_range(min(medians), max(p90s))} (least median to largest p90)"
    devices = len({run["profile"] for run in runs})
    ranges = (min(medians), max(medians)), (min(p90s), max(p90s))
    sentence = f"{basis}; {subject} {verb} {errors} [{suites}]"
    return Evidence(basis, measured_rows, scope, suites, count, devices, *ranges, sentence)


def _own_check(rows: int, basis: str) -> Evidence | None:
    """What ``accelsim calibrate check`` found on this machine; None where it has not checked
    today's predictions.
    """
    folder = calibration_folders()[0]
    try:
        predictions, check = (
            read_json(folder / name, max_bytes=_MAX_CHECK_BYTES)
            for name in ("frozen.json", "results.json")
        )
        is_current = check["frozen_hash"] == predictions["hash"]
        errors = [
            abs(row["predicted_s"] / row["measured_s"] - 1.0)
            for row in (check["results"] if is_current else ())
            if row["measured_s"] and row["threads"]
        ]
    except (InputError, KeyError, TypeError):
        return None
    if not errors:
        return None
    median, p90 = np.quantile(errors, (0.5, 0.9)).tolist()
    runs = _plural("whole-model run", len(errors))
    verb = "was" if len(errors) == 1 else "were"
    finding = f"{runs} on it {verb} {_within(median, p90)} [accelsim calibrate check]"
    return _of_device(basis, rows, _CHECK, len(errors), median, p90, finding)


_MAX_CHECK_BYTES = 20_000_000


def _own_operators(device: str, rows: int, basis: str) -> Evidence | None:
    """How far operators left out of a device's own calibration lay from it; None where it has
    none.
    """
    overlay = fitted_parameters(device)
    if overlay is None or overlay.held_out is None:
        return None
    held_out = overlay.held_out
    median, p90 = held_out.median_fraction, held_out.p90_fraction
    finding = (
        f"{_plural('operator', held_out.rows)} left out of the fit lay {_within(median, p90)}; "
        "accelsim calibrate check measures whole models"
    )
    return _of_device(basis, rows, "calibrate", held_out.rows, median, p90, finding)


def _of_device(
    basis: str, measured_rows: int, suite: str, rows: int, median: float, p90: float, finding: str
) -> Evidence:
    """What a calibration of the device itself found."""
    ranges = (median, median), (p90, p90)
    sentence = f"{basis}; {finding}"
    return Evidence(basis, measured_rows, "this device", suite, rows, 1, *ranges, sentence)


def _basis(device: str, tier: str, relatives: tuple[str, ...]) -> tuple[int, str]:
    """Measured rows of the device behind the parameters, and where these come from."""
    overlay = None if tier == "spec" else fitted_parameters(device)
    if overlay is not None and overlay.rows:
        return overlay.rows, f"fitted on {overlay.rows:,} measurements of this device"
    if tier != "spec":
        return 0, "fitted to published measurements of this device"
    if not relatives:
        return 0, "data sheet and class-wide parameters"
    others = " and others" if len(relatives) > _SHOWN_BOARDS else ""
    shown = ", ".join(relatives[:_SHOWN_BOARDS])
    return 0, f"class-wide parameters with the kernel surfaces of {shown}{others}"


def _plural(noun: str, count: int) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def _within(median: float, p90: float) -> str:
    return f"within {_range(median, median)} (median), {_range(p90, p90)} (p90)"


def _range(low_fraction: float, high_fraction: float) -> str:
    low, high = f"{100 * low_fraction:.0f}", f"{100 * high_fraction:.0f}"
    return f"{low} %" if low == high else f"{low} to {high} %"

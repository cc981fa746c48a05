"""Scenarios of claims as data: runs, ratios of runs and profile figures, and what is expected of
them.

``scenarios.yaml`` has an entry per claim. Its `readings` name a figure of an estimate, of a
training run (`gpus` or `cluster`) or of a device, and the run; `over` changes the run to the one
that the figure is divided by; `sweep` makes a reading per value. `check` names a function of
`accelsim.claims.checks` instead. `reason` says why there is neither, or what to hold against the
readings there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

import accelsim
from accelsim import catalog
from accelsim.claims.claim import EXACT, Reading
from accelsim.errors import InputError, UnknownNameError
from accelsim.files.datafile import read_yaml
from accelsim.hardware.sourced import FrozenModel, value_of
from accelsim.plain import Document, Values

_FILE = Path(__file__).with_name("scenarios.yaml")
_DEVICE = "device."


class ReadingScenario(FrozenModel):
    """A reading before it is run; see the module."""

    name: str
    figure: str
    run: Values
    over: Values | None = None
    scale: float = 1.0
    sweep: Mapping[str, list[Any]] | None = None
    expected: float | str | list[float | str] | None = None
    within: float = EXACT
    at_least: float | None = None
    at_most: float | None = None
    verified: bool = True


class ClaimScenario(FrozenModel):
    """A claim before it is run; `measured` where its figures were."""

    title: str
    source: str
    measured: bool = False
    check: str | None = None
    readings: Annotated[list[ReadingScenario], Field(default_factory=list)]
    reason: str = ""


@cache
def _scenarios() -> Mapping[str, ClaimScenario]:
    document = read_yaml(_FILE)
    return {name: ClaimScenario.model_validate(entry) for name, entry in document.items()}


def claim_ids() -> tuple[str, ...]:
    """Names of all claims."""
    return tuple(_scenarios())


def claim_scenario(name: str) -> ClaimScenario:
    """A claim by its name, in any case.

    Raises:
        UnknownNameError: If there is no such claim.
    """
    scenario = _scenarios().get(name.upper())
    if scenario is None:
        remedy = "See all with: accelsim claims list"
        raise UnknownNameError("claim", name, tuple(_scenarios()), remedy)
    return scenario


def scenario_readings(scenario: ReadingScenario) -> Iterator[Reading]:
    """A reading for each value of a scenario's sweep."""
    if scenario.sweep is None:
        yield _reading(scenario, scenario.name, dict(scenario.run), scenario.expected)
        return
    ((key, values),) = scenario.sweep.items()
    expected = scenario.expected
    figures = expected if isinstance(expected, list) else [expected] * len(values)
    for value, figure in zip(values, figures, strict=True):
        name = f"{scenario.name}, {key} {value}"
        yield _reading(scenario, name, {**scenario.run, key: value}, figure)


def _reading(spec: ReadingScenario, name: str, run: Document, expected: Any) -> Reading:
    simulated: float | str | None = None
    scenario, note = {"figure": spec.figure, **run}, ""
    if spec.over is not None:
        scenario["over"] = spec.over
    try:
        simulated = _figure(spec.figure, run)
        if spec.over is not None and isinstance(simulated, float):
            divisor = _figure(spec.figure, {**run, **spec.over})
            simulated = simulated / divisor if isinstance(divisor, float) and divisor else None
    except InputError as error:
        simulated = type(error).__name__ if spec.figure == "refused" else None
        note = str(error)
    if isinstance(simulated, float):
        simulated *= spec.scale
    return Reading(
        name,
        simulated,
        expected,
        spec.within,
        spec.at_least,
        spec.at_most,
        spec.verified,
        scenario,
        note,
    )


def scenario_figure(scenario: Values) -> float | str | None:
    """The figure that a scenario names.

    Args:
        scenario: A run with the name of its ``figure``.
    """
    run = dict(scenario)
    return _figure(str(run.pop("figure")), run)


def _figure(figure: str, run: Values) -> float | str | None:
    """A figure of a device, of a training run on several, or of an estimate."""
    if figure.startswith(_DEVICE):
        return _device_figure(figure.removeprefix(_DEVICE), str(run["device"]))
    arguments = dict(run)
    model = arguments.pop("model")
    if "gpus" in arguments or "cluster" in arguments:
        value = getattr(accelsim.train(model, **arguments), figure)
    else:
        estimate = accelsim.estimate(model, **arguments)
        value = "nothing" if figure == "refused" else getattr(estimate, figure)
    return value if value is None or isinstance(value, str) else float(value)


def _device_figure(figure: str, device: str) -> float | None:
    """A field of a profile by its path, or a peak, a peak per watt, lanes, or the ridge."""
    profile: Any = catalog.device(device)
    head, _, format_name = figure.partition(".")
    divisors = {
        "peak": 1.0,
        "peak_per_w": value_of(profile.power.limit_w, None),
        "ridge": profile.memory_bandwidth_bytes_per_s,
    }
    if head in divisors:
        peaks = {dtype.label: rate for dtype, rate in profile.peak_flop_per_s.items()}
        divisor = divisors[head]
        return None if divisor is None else float(peaks[format_name] / divisor)
    if head == "lanes":
        return float(profile.sm_count.value * profile.lanes_per_sm.value)
    value = attrgetter(figure)(profile)
    return None if value is None else float(value.value)

"""Suites of measured rows and the registry they stand in.

A suite reads its tables into batches (`MeasuredBatch`): rows of one device that are predicted by
one call, with a function from parameters to times. What a suite cannot ask the model (an unknown
device, a model that is not in the catalogue) is a batch of refusals with their reason. The scoring
is the same for every suite.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Hashable, Iterable, Sequence
from dataclasses import field
from importlib import import_module
from typing import Any, Literal, TypedDict, TypeVar, Unpack

import numpy as np

from accelsim.cost.registry import Parameters
from accelsim.errors import AccelsimError, InputError, InvalidValueError, UnknownNameError
from accelsim.files.datafile import data_root
from accelsim.frozen import frozen
from accelsim.hardware.profile import DeviceProfile
from accelsim.plain import Document
from accelsim.scoreboard.data_folder import DataFolder, Schema
from accelsim.scoreboard.split import HELD_OUT_SHARE
from accelsim.workloads.graph import BoolArray, FloatArray, TextArray


@frozen(eq=False)
class Prediction:
    """Times of one batch.

    Attributes:
        time_s: Predicted times, shape (n,), s.
        log_sigma: Standard deviation of ln(true / predicted), shape (n,); NaN where unknown.
    """

    time_s: FloatArray
    log_sigma: FloatArray


#: Predicts all rows of a batch with given parameters; None takes the class-wide ones.
Predict = Callable[[Any | None], Prediction]


@frozen(eq=False)
class MeasuredBatch:
    """Measured rows of one device.

    Attributes:
        device: Name in the table.
        profile: Its profile; None where it is unknown.
        group: Operator or model of each row, shape (n,).
        label: Configuration of each row without the device; equal labels on several devices are the
            same work, shape (n,).
        measured_s: Measured times, shape (n,), s.
        roofline_s: Plain roofline of the rows, shape (n,); NaN where unknown.
        predict: Predicts the rows; None where all are refused.
        refusal: Why all rows are refused; empty where they are not.
        views: Named subsets reported beside the groups (rows count in their group, too).
        fit_source: Data a fit may have used, whose held-out shapes alone are scored at tier
            `fitted`; empty where fits never use such rows.
        held_out_share: Part of the shapes that fits never use.
        setting: Mode, format and kind of model of each row (`accelsim.estimation.likeness`), shape
            (n,); None where rows are no runs of whole models.
        origin: What is left out whole where the spread of a row's like is asked, shape (n,): a
            model, or one on an engine; its board where None.
    """

    device: str
    profile: DeviceProfile | None
    group: TextArray
    label: TextArray
    measured_s: FloatArray
    roofline_s: FloatArray
    predict: Predict | None
    refusal: str = ""
    views: tuple[tuple[str, BoolArray], ...] = ()
    fit_source: str = ""
    held_out_share: float = HELD_OUT_SHARE
    setting: TextArray | None = None
    origin: TextArray | None = None

    def __len__(self) -> int:
        return len(self.measured_s)


def refused_batch(
    device: str,
    group: TextArray,
    label: TextArray,
    measured_s: FloatArray,
    refusal: str,
    profile: DeviceProfile | None = None,
) -> MeasuredBatch:
    """Rows that are not asked of the model, with the reason."""
    return MeasuredBatch(
        device, profile, group, label, measured_s, np.full(len(measured_s), np.nan), None, refusal
    )


def fixed_prediction(prediction: Prediction) -> Predict:
    """Predicts rows whose times no parameters of a device enter, or those of tier `best` alone."""
    return lambda _parameters: prediction


def reason_of(error: AccelsimError) -> str:
    """Why rows are refused: the first sentence of an error, without its remedy."""
    return str(error).split(". ")[0].rstrip(".")


Run = TypeVar("Run", bound=Hashable)


def predict_each(
    runs: Sequence[Run], predicted: Callable[[Run, Any | None], tuple[float, float]]
) -> Predict:
    """Predicts runs one by one, equal ones once.

    Args:
        runs: What the rows of a batch ran.
        predicted: Time of a run with given parameters, s, and its log standard deviation.
    """

    def predict(parameters: Parameters | None) -> Prediction:
        predictions = {run: predicted(run, parameters) for run in dict.fromkeys(runs)}
        pairs = np.array([predictions[run] for run in runs]).reshape(-1, 2)
        return Prediction(pairs[:, 0], pairs[:, 1])

    return predict


@frozen
class Suite:
    """A named set of measured rows.

    Attributes:
        name: As on the command line.
        title: What it holds, in a few words.
        files: Tables it needs.
        group_key: What the groups of a device are: "operator" or "model".
        load: Reads the tables into batches.
        optional_files: Tables it scores where they are there.
        is_ranked: Whether rows of one label are devices to choose from, so that their ranking is
            scored.
        findings: Further figures of the scored rows, by name.
        quantity: What is measured, for the axes of plots.
        is_of_operators: Whether a GPU's parameters that never saw operators like its rows give way.
        has_best_alone: Whether rows are predicted as `accelsim.train` does by default; such a suite
            has no other tier than `best`.
    """

    name: str
    title: str
    files: tuple[Schema, ...]
    group_key: Literal["operator", "model"]
    load: Callable[[DataFolder], Sequence[MeasuredBatch]] = field(repr=False)
    optional_files: tuple[Schema, ...] = ()
    is_ranked: bool = False
    findings: Callable[[Sequence[Any]], Document] | None = field(default=None, repr=False)
    quantity: str = "time, s"
    is_of_operators: bool = False
    has_best_alone: bool = False

    @property
    def tables(self) -> tuple[Schema, ...]:
        """All tables that it reads."""
        return (*self.files, *self.optional_files)


_SUITES: dict[str, Suite] = {}
Load = Callable[[DataFolder], Sequence[MeasuredBatch]]


class SuiteOptions(TypedDict, total=False):
    """The attributes of `Suite` that have a default."""

    optional_files: tuple[Schema, ...]
    is_ranked: bool
    findings: Callable[[Sequence[Any]], Document]
    quantity: str
    is_of_operators: bool
    has_best_alone: bool


def register_suite(
    name: str,
    title: str,
    files: tuple[Schema, ...],
    group_key: Literal["operator", "model"],
    **options: Unpack[SuiteOptions],
) -> Callable[[Load], Load]:
    """Register a suite; the decorated function reads its tables into batches.

    Raises:
        InvalidValueError: If the name is taken.
    """

    def add(load: Load) -> Load:
        if name in _SUITES:
            raise InvalidValueError("suite", name, "a name that is not registered yet")
        _SUITES[name] = Suite(name, title, files, group_key, load, **options)
        return load

    return add


#: Modules whose suites are scored: those over tables that ship, and what `add_modules` adds.
_MODULES = [
    "accelsim.scoreboard.gpu_models",
    "accelsim.scoreboard.cnn_gpus",
    "accelsim.scoreboard.mlperf_inference",
    "accelsim.scoreboard.asic_networks",
    "accelsim.scoreboard.llama_cpp",
]


def add_modules(names: Iterable[str]) -> None:
    """Score the suites of more modules, too; each registers its suites when it is imported."""
    _MODULES.extend(name for name in names if name not in _MODULES)


def suites() -> tuple[Suite, ...]:
    """All suites, in the order of their modules; suites of other modules last."""
    _import_all()
    order = {module: index for index, module in enumerate(_MODULES)}
    return tuple(
        sorted(
            _SUITES.values(),
            key=lambda registered: order.get(registered.load.__module__, len(order)),
        )
    )


def suite(name: str) -> Suite:
    """A suite by name.

    Raises:
        InputError: If its tables do not ship; the message has the command that scores them.
        UnknownNameError: If there is none.
    """
    _import_all()
    chosen = _SUITES.get(name)
    if chosen is None and name in _reported():
        raise InputError(
            f"suite {name} reads tables that do not ship with accelsim. In a checkout, run: "
            f"python -m tools.scoreboard {name} --data DIR"
        )
    if chosen is None:
        raise UnknownNameError("suite", name, _SUITES, f"Suites: {', '.join(_SUITES)}.")
    return chosen


def _reported() -> Container[str]:
    """Suites of the report that ships, over all tables."""
    report = json.loads((data_root() / "calibration" / "ACCURACY.json").read_text(encoding="utf-8"))
    return set(report["suites"])


def _import_all() -> None:
    for module in _MODULES:
        import_module(module)

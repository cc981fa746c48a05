"""Estimates of many runs at once: columns in, columns out, the same figures as one by one.

Runs of one workload on one device differ in their sizes alone, so they are lowered together
(`accelsim.workloads.lowering`), their distinct operators are costed in one call, and the device's
schedule is worked out in closed form (`accelsim.estimation.schedule`). Runs that this does not
cover (training, hosts, captured modules, calibrated CPUs, caches of weights, overlays of FPGAs,
those that the user's own runs correct) go through `estimate`, one by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from numpy.typing import NDArray

from accelsim.arguments import checked
from accelsim.economics.device_price import DevicePrice, device_price
from accelsim.economics.result import usd_per_1000_inferences, usd_per_million_tokens
from accelsim.errors import (
    DoesNotFitError,
    InputError,
    InvalidValueError,
    UnknownNameError,
    UnsupportedOperatorError,
)
from accelsim.estimation.estimate import estimate
from accelsim.estimation.options import (
    EstimateKeywords,
    PriceChoice,
    RunOptions,
    options_and_price,
)
from accelsim.estimation.resolution import resolve
from accelsim.estimation.run import ResolvedRun
from accelsim.estimation.scenario_figures import scenario_figures
from accelsim.frozen import frozen
from accelsim.hardware.profile import AsicProfile, CpuProfile, DeviceProfile, GpuProfile
from accelsim.plain import Document, Values
from accelsim.workloads.graph import FloatArray, IntArray

if TYPE_CHECKING:
    import pandas as pd

#: Columns a question may have.
SHAPE_COLUMNS = ("batch", "seq_len", "output_len", "image_size")
#: Figures of the answer, as `Estimate` names them.
_FLOAT_FIGURES = (
    "latency_s",
    "latency_low_s",
    "latency_high_s",
    "throughput_per_s",
    "tokens_per_s",
    "time_to_first_token_s",
    "time_per_output_token_s",
    "energy_j",
    "average_power_w",
    "energy_per_sample_j",
    "memory_bytes",
    "memory_short_bytes",
    "flop",
    "bytes",
    "usd_per_hour",
    "cost_usd_per_1000",
    "cost_usd_per_million_tokens",
)
#: Rows that a notebook shows.
_MOST_ROWS = 60
_WORD_FIGURES = ("precision", "stack", "execution", "tier", "bound", "offer", "reason")
#: Scenarios costed in one call: more are faster and take more memory.
_CHUNK = 512
#: Stands in columns for a size that was left out; callers' sizes are never negative.
_LEFT_OUT = -1


@frozen(eq=False)
class EstimateColumns:
    """Estimates of n runs, in the order they were asked for.

    Attributes:
        columns: Name -> column, shape (n,): workload, device, mode, the sizes, then the figures of
            `Estimate` with their names. An unknown figure is NaN, an unknown word "". ``reason``
            says why a run has no figures.
    """

    columns: Mapping[str, NDArray[Any]]

    def __len__(self) -> int:
        return len(self.columns["workload"])

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __repr__(self) -> str:
        answered = int((self.columns["reason"] == "").sum())
        return f"<EstimateColumns: {len(self)} runs, {answered} answered>"

    def _repr_html_(self) -> str:
        """The table that notebooks show."""
        return str(self.to_frame().to_html(max_rows=_MOST_ROWS, notebook=True))

    def to_frame(self) -> pd.DataFrame:
        """One row per run."""
        import pandas as pd

        return pd.DataFrame(dict(self.columns))


@checked
def estimate_many(
    workload: str | Sequence[str] | Mapping[str, Any] | Sequence[Mapping[str, Any]] | pd.DataFrame,
    device: str | Sequence[str] | None = None,
    options: RunOptions | None = None,
    price: PriceChoice | None = None,
    *,
    shapes: Values | None = None,
    **keywords: Unpack[EstimateKeywords],
) -> EstimateColumns:
    """Estimate many runs: one per place of the columns, or one per row of a table.

    Args:
        workload: A name, or one per run; or a table of runs: a sequence of mappings, a data frame,
            or a mapping of columns. Its columns are workload, device and any keywords; what a row
            lacks, or has as None or NaN, is the options'.
        device: A name, or one per run; a table names its own.
        options: What runs; the same for all but the sizes.
        price: Which price; the cheapest on-demand offer where None.
        shapes: Columns batch, seq_len, output_len and image_size: one value or one per run; those
            left out are the options'.
        keywords: Fields of `RunOptions` and of `PriceChoice`, the same for all runs.

    Returns:
        A row per run. One that cannot run or does not fit has a reason instead of figures.

    Raises:
        InputError: If a name or option is wrong, or columns are of different lengths; of a table
            with the row, counted from 0.
    """
    given: Any = workload
    if _is_table(given):
        if device is not None and len(given):
            raise InvalidValueError("workload", given, "names beside device: a table has its own")
        return _estimate_rows(_rows(given), options, price, {**keywords, **(shapes or {})})
    if device is None:
        raise InvalidValueError("device", None, "a name, or one per run")
    chosen, paid = options_and_price(options, price, keywords)
    asked = _asked(given, device, shapes or {})
    answer = empty_columns(len(asked["workload"]))
    pairs = np.char.add(np.char.add(asked["workload"], "\n"), asked["device"])
    for pair in np.unique(pairs):
        runs = np.flatnonzero(pairs == pair)
        model, name = str(pair).split("\n")
        _answer_pair(answer, runs, model, name, asked, chosen, paid)
    return EstimateColumns(answer)


def _is_table(given: Any) -> bool:
    """Whether it is rows or columns of runs, and no names."""
    if isinstance(given, Mapping) or np.ndim(given) > 1:
        return True
    is_listed = isinstance(given, Sequence) and not isinstance(given, str)
    return is_listed and not isinstance(next(iter(given), None), str)


def _rows(table: Any) -> list[Document]:
    """Rows of a table, without what is unknown.

    Raises:
        InvalidValueError: If columns are of different lengths.
    """
    if isinstance(table, Mapping):
        columns = _broadcast({name: np.asarray(table[name], dtype=object) for name in table})
        values = zip(*(column.tolist() for column in columns.values()), strict=True)
        table = [dict(zip(columns, row, strict=True)) for row in values]
    elif not isinstance(table, Sequence):
        from accelsim.files.formats import records

        table = records(table)
    return [{name: row[name] for name in row if not _is_unknown(row[name])} for row in table]


def _is_unknown(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _estimate_rows(
    rows: Sequence[Document],
    options: RunOptions | None,
    price: PriceChoice | None,
    keywords: Document,
) -> EstimateColumns:
    """Estimates of rows, of which those that differ in sizes alone are answered together."""
    groups: dict[tuple[tuple[str, Any], ...], list[int]] = {}
    asked = {name: np.full(len(rows), _LEFT_OUT) for name in SHAPE_COLUMNS}
    for index, row in enumerate(rows):
        with _of_row(index):
            for name in {**row, "workload": "", "device": ""}:
                _check_cell(name, row.get(name))
                if name in asked:
                    asked[name][index] = _sizes(name, _whole(row[name]))
        own = sorted(item for item in row.items() if item[0] not in asked)
        groups.setdefault(tuple(own), []).append(index)
    answer = empty_columns(len(rows))
    for group, indices in groups.items():
        said = dict(group)
        model, device = said.pop("workload"), said.pop("device")
        with _of_row(indices[0]):
            chosen, paid = options_and_price(options, price, keywords | said)
        _answer_pair(answer, np.asarray(indices), model, device, asked, chosen, paid)
    return EstimateColumns(answer)


def _check_cell(name: str, value: Any) -> None:
    """Refuse a column that a table has not, and a value that no run can have."""
    if name in {"workload", "device"}:
        if not isinstance(value, str):
            raise InvalidValueError(name, value, "a name")
    elif name not in EstimateKeywords.__annotations__:
        known = ("workload", "device", *EstimateKeywords.__annotations__)
        raise UnknownNameError("column", str(name), known)
    try:
        hash(value)
    except TypeError:
        raise InvalidValueError(name, value, "one value") from None


def _whole(value: Any) -> Any:
    """A whole number, which a column with gaps has as a float."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


@contextmanager
def _of_row(row: int) -> Iterator[None]:
    """Say which row a wrong input is of."""
    try:
        yield
    except InputError as error:
        error.args = (f"row {row}: {error}",)
        raise


def _asked(
    workload: str | Sequence[str], device: str | Sequence[str], shapes: Values
) -> dict[str, NDArray[Any]]:
    """Columns of the question, all of one length, `_LEFT_OUT` where a size was left out."""
    unknown = shapes.keys() - set(SHAPE_COLUMNS)
    if unknown:
        raise InvalidValueError("shapes", min(unknown), "columns of " + ", ".join(SHAPE_COLUMNS))
    columns: Document = {
        "workload": np.asarray(workload, dtype=str),
        "device": np.asarray(device, dtype=str),
    }
    for name in SHAPE_COLUMNS:
        field = f"shapes[{name!r}]"
        columns[name] = _sizes(field, shapes[name]) if name in shapes else _LEFT_OUT
    return _broadcast(columns)


def _broadcast(columns: Values) -> dict[str, NDArray[Any]]:
    """Columns of one length.

    Raises:
        InvalidValueError: If they are of different lengths.
    """
    flat = {name: np.atleast_1d(np.asarray(column)) for name, column in columns.items()}
    try:
        return dict(zip(flat, np.broadcast_arrays(*flat.values()), strict=True))
    except ValueError:
        lengths = {name: len(column) for name, column in flat.items()}
        raise InvalidValueError("shapes", lengths, "columns of one length, or of one") from None


def _sizes(field: str, given: Any) -> NDArray[Any]:
    """A column of sizes as the caller has it.

    Raises:
        InvalidValueError: If one is negative or no whole number; `resolve` knows the other limits.
    """
    column = np.asarray(given)
    if not np.issubdtype(column.dtype, np.integer):
        raise InvalidValueError(field, given, "whole numbers")
    if (column < 0).any():
        raise InvalidValueError(field, int(column.min()), "no negative sizes")
    return column


def empty_columns(count: int) -> dict[str, NDArray[Any]]:
    """Columns of an answer without figures, shape (count,)."""
    words = {name: np.full(count, "", dtype=object) for name in ("workload", "device", "mode")}
    sizes = {name: np.zeros(count, dtype=np.int64) for name in SHAPE_COLUMNS}
    floats = {name: np.full(count, np.nan) for name in _FLOAT_FIGURES}
    named = {name: np.full(count, "", dtype=object) for name in _WORD_FIGURES}
    return words | sizes | floats | named | {"fits": np.zeros(count, dtype=bool)}


def _answer_pair(
    answer: dict[str, NDArray[Any]],
    runs: IntArray,
    workload: str,
    device: str,
    asked: Mapping[str, NDArray[Any]],
    options: RunOptions,
    price: PriceChoice,
) -> None:
    """Fill in the runs of one workload on one device."""
    with _of_row(runs[0]):
        run = resolve(workload, device, options)
        cost = device_price(run.device, price)
    answer["workload"][runs], answer["device"][runs] = run.workload.name, run.device_label
    answer["mode"][runs], answer["precision"][runs] = run.mode, run.precision.name
    answer["stack"][runs], answer["execution"][runs] = run.stack.label, run.execution.value
    for name in SHAPE_COLUMNS:
        given = asked[name][runs]
        answer[name][runs] = np.where(given == _LEFT_OUT, getattr(run, name), given)
    _check_sizes(run, options, answer, runs)
    if not _is_covered(run):
        _one_by_one(answer, runs, workload, device, asked, options, price)
        return
    generates = answer["output_len"][runs] > 0
    for alike in (runs[generates], runs[~generates]):
        for start in range(0, len(alike), _CHUNK):
            _answer_chunk(answer, alike[start : start + _CHUNK], run, cost)


def _check_sizes(
    run: ResolvedRun, options: RunOptions, answer: Mapping[str, NDArray[Any]], runs: IntArray
) -> None:
    """Refuse sizes that a single run refuses: the ends of each column are checked for all."""
    for name in SHAPE_COLUMNS:
        for value in {int(answer[name][runs].min()), int(answer[name][runs].max())}:
            if getattr(run, name) != value:
                sizes = replace(options.shape, **{name: value})
                with _of_row(runs[answer[name][runs] == value][0]):
                    resolve(run.workload, run.device, replace(options, shape=sizes))


def _is_covered(run: ResolvedRun) -> bool:
    """Whether runs of this kind are answered together."""
    device = run.device
    return (
        run.mode == "inference"
        and run.workload.family is not None
        and run.host is None
        and run.learned is None
        and run.offload is None
        and run.steps == 1
        and not run.images
        and run.cluster is None
        and (isinstance(device, GpuProfile) or _prices_rows_alone(device, run.heap))
    )


def _prices_rows_alone(device: DeviceProfile, heap: str) -> bool:
    """Whether no row's cost depends on the others of its graph: a calibration of a CPU knows a
    row's neighbours, a weight cache holds those of a whole graph.
    """
    if isinstance(device, AsicProfile):
        return device.weight_cache_bytes is None
    if not isinstance(device, CpuProfile):
        return False
    from accelsim.cost.cpu.calibrated import parameters_for

    return heap == "default" and parameters_for(device.name) is None


def _one_by_one(
    answer: dict[str, NDArray[Any]],
    runs: IntArray,
    workload: str,
    device: str,
    asked: Mapping[str, NDArray[Any]],
    options: RunOptions,
    price: PriceChoice,
) -> None:
    for place in runs.tolist():
        sizes = {name: int(asked[name][place]) for name in SHAPE_COLUMNS}
        shape = {name: value for name, value in sizes.items() if value != _LEFT_OUT}
        try:
            result = estimate(workload, device, options, price, **shape)  # type: ignore[arg-type]
        except (UnsupportedOperatorError, DoesNotFitError) as error:
            answer["reason"][place] = str(error)
            continue
        # tokens of pictures are in the length of a prompt
        for name in ("seq_len", *_FLOAT_FIGURES, *_WORD_FIGURES[:-1], "fits"):
            value = getattr(result, name)
            if value is not None:
                answer[name][place] = value
        if not result.fits:
            answer["reason"][place] = _short(result.memory_short_bytes)


def _short(missing_bytes: float) -> str:
    return f"does not fit: {missing_bytes / 1e9:,.1f} GB short"


def _answer_chunk(
    answer: dict[str, NDArray[Any]], runs: IntArray, run: ResolvedRun, price: DevicePrice
) -> None:
    sizes = {name: answer[name][runs] for name in SHAPE_COLUMNS}
    try:
        figures = scenario_figures(run, sizes)
    except UnsupportedOperatorError as error:
        answer["reason"][runs] = str(error)
        return
    available = run.available_bytes
    short = np.maximum(0.0, figures["memory_bytes"] - available)
    fits = short <= 0
    for name, column in figures.items():
        always = name in {"memory_bytes", "flop", "bytes", "tier"}
        answer[name][runs] = column if always else np.where(fits, column, _missing(column))
    answer["memory_short_bytes"][runs], answer["fits"][runs] = short, fits
    answer["bound"][runs[~fits]] = "memory_capacity"
    answer["reason"][runs[~fits]] = [_short(value) for value in short[~fits].tolist()]
    _add_prices(answer, runs, price)


def _missing(column: NDArray[Any]) -> Any:
    return "" if column.dtype == object else np.nan


def _add_prices(answer: dict[str, NDArray[Any]], runs: IntArray, price: DevicePrice) -> None:
    if price.usd_per_hour is None:
        return
    answer["usd_per_hour"][runs], answer["offer"][runs] = price.usd_per_hour, price.offer or ""
    costs: tuple[tuple[str, str, Callable[..., FloatArray]], ...] = (
        ("cost_usd_per_1000", "throughput_per_s", usd_per_1000_inferences),
        ("cost_usd_per_million_tokens", "tokens_per_s", usd_per_million_tokens),
    )
    for name, rate_name, cost in costs:
        known = runs[answer[rate_name][runs] > 0]  # NaN where there is no rate
        rate = answer[rate_name][known]
        answer[name][known] = cost(np.full(len(known), price.usd_per_hour), rate)

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
from typing import TYPE_CHECKING, Any, Unpack, cast

import numpy as np

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
from accelsim.estimation.options import EstimateKeywords, PriceChoice, RunOptions, options_and_price
from accelsim.estimation.resolution import resolve
from accelsim.estimation.run import ResolvedRun
from accelsim.estimation.scenario_figures import Column, Columns, scenario_figures
from accelsim.frozen import frozen
from accelsim.hardware.profile import AsicProfile, CpuProfile, DeviceProfile, GpuProfile
from accelsim.plain import Document, Values
from accelsim.workloads.graph import FloatArray, IntArray

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike

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

    columns: Mapping[str, Column]

    def __len__(self) -> int:
        return len(self.columns["workload"])

    def __getitem__(self, name: str) -> Column:
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
    table: object = workload
    if _is_table(table):
        if device is not None and len(workload):
            raise InvalidValueError("workload", table, "names beside device: a table has its own")
        return _estimate_rows(_rows(table), options, price, {**keywords, **(shapes or {})})
    if device is None:
        raise InvalidValueError("device", None, "a name, or one per run")
    chosen, paid = options_and_price(options, price, keywords)
    question = _question(table, device, shapes or {})
    answer = _Answer(empty_columns(len(question["workload"])), question)
    pairs = np.char.add(np.char.add(question["workload"], "\n"), question["device"])
    for pair in np.unique(pairs):
        model, name = str(pair).split("\n")
        answer.fill_pair(np.flatnonzero(pairs == pair), model, name, chosen, paid)
    return EstimateColumns(answer.columns)


def _is_table(runs: object) -> bool:
    """Whether it is rows or columns of runs, and no names."""
    if isinstance(runs, Mapping) or np.ndim(cast("ArrayLike", runs)) > 1:
        return True
    if isinstance(runs, str) or not isinstance(runs, Sequence):
        return False
    return not isinstance(next(iter(runs), None), str)


def _rows(table: object) -> list[Document]:
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

        table = records(cast("pd.DataFrame", table))
    return [
        {
            name: value
            for name, value in row.items()
            if value is not None and not (isinstance(value, float) and math.isnan(value))
        }
        for row in table
    ]


def _estimate_rows(
    rows: Sequence[Document],
    options: RunOptions | None,
    price: PriceChoice | None,
    keywords: Document,
) -> EstimateColumns:
    """Estimates of rows, of which those that differ in sizes alone are answered together."""
    groups: dict[tuple[tuple[str, object], ...], list[int]] = {}
    sizes: Columns = {name: np.full(len(rows), _LEFT_OUT) for name in SHAPE_COLUMNS}
    for index, row in enumerate(rows):
        with _of_row(index):
            for name in {**row, "workload": "", "device": ""}:
                _check_cell(name, row.get(name))
                if name in sizes:
                    value = row[name]  # a column of whole numbers with gaps has floats
                    is_whole = isinstance(value, float) and value.is_integer()
                    sizes[name][index] = _sizes(name, int(value) if is_whole else value)
        others = sorted(item for item in row.items() if item[0] not in sizes)
        groups.setdefault(tuple(others), []).append(index)
    answer = _Answer(empty_columns(len(rows)), sizes)
    for group, indices in groups.items():
        fields: Document = dict(group)
        model, device = fields.pop("workload"), fields.pop("device")
        with _of_row(indices[0]):
            chosen, paid = options_and_price(options, price, keywords | fields)
        answer.fill_pair(np.asarray(indices), model, device, chosen, paid)
    return EstimateColumns(answer.columns)


def _check_cell(name: str, value: object) -> None:
    """Refuse a column that a table has not, and a value that no run can have."""
    if name in {"workload", "device"}:
        if not isinstance(value, str):
            raise InvalidValueError(name, value, "a name")
    elif name not in EstimateKeywords.__annotations__:
        columns = ("workload", "device", *EstimateKeywords.__annotations__)
        raise UnknownNameError("column", str(name), columns)
    try:
        hash(value)
    except TypeError:
        raise InvalidValueError(name, value, "one value") from None


@contextmanager
def _of_row(row: int) -> Iterator[None]:
    """Say which row a wrong input is of."""
    try:
        yield
    except InputError as error:
        error.args = (f"row {row}: {error}",)
        raise


def _question(workload: object, device: str | Sequence[str], shapes: Values) -> Columns:
    """Columns of the question, all of one length, `_LEFT_OUT` where a size was left out."""
    unknown = shapes.keys() - set(SHAPE_COLUMNS)
    if unknown:
        raise InvalidValueError("shapes", min(unknown), "columns of " + ", ".join(SHAPE_COLUMNS))
    columns: dict[str, Column | int] = {
        "workload": np.asarray(workload, dtype=str),
        "device": np.asarray(device, dtype=str),
    }
    for name in SHAPE_COLUMNS:
        field = f"shapes[{name!r}]"
        columns[name] = _sizes(field, shapes[name]) if name in shapes else _LEFT_OUT
    return _broadcast(columns)


def _broadcast(columns: Mapping[str, Column | int]) -> Columns:
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


def _sizes(field: str, sizes: object) -> Column:
    """A column of sizes as the caller has it.

    Raises:
        InvalidValueError: If one is negative or no whole number; `resolve` knows the other limits.
    """
    column = np.asarray(sizes)
    if not np.issubdtype(column.dtype, np.integer):
        raise InvalidValueError(field, sizes, "whole numbers")
    if (column < 0).any():
        raise InvalidValueError(field, int(column.min()), "no negative sizes")
    return column


def empty_columns(count: int) -> Columns:
    """Columns of an answer without figures, shape (count,)."""
    names = {name: np.full(count, "", dtype=object) for name in ("workload", "device", "mode")}
    sizes = {name: np.zeros(count, dtype=np.int64) for name in SHAPE_COLUMNS}
    floats = {name: np.full(count, np.nan) for name in _FLOAT_FIGURES}
    texts = {name: np.full(count, "", dtype=object) for name in _WORD_FIGURES}
    return names | sizes | floats | texts | {"fits": np.zeros(count, dtype=bool)}


@frozen(eq=False)
class _Answer:
    """An answer whose columns are filled in, those of one workload on one device at a time.

    Attributes:
        columns: As of `EstimateColumns`.
        sizes: Sizes that were asked for, `_LEFT_OUT` where one was left out.
    """

    columns: Columns
    sizes: Mapping[str, Column]

    def fill_pair(
        self, runs: IntArray, workload: str, device: str, options: RunOptions, price: PriceChoice
    ) -> None:
        """Fill in the runs of one workload on one device."""
        with _of_row(runs[0]):
            run = resolve(workload, device, options)
            cost = device_price(run.device, price)
        columns = self.columns
        columns["workload"][runs], columns["device"][runs] = run.workload.name, run.device_label
        columns["mode"][runs], columns["precision"][runs] = run.mode, run.precision.name
        columns["stack"][runs], columns["execution"][runs] = run.stack.label, run.execution.value
        for name in SHAPE_COLUMNS:
            sizes = self.sizes[name][runs]
            columns[name][runs] = np.where(sizes == _LEFT_OUT, getattr(run, name), sizes)
        self._check_sizes(run, options, runs)
        if not _is_covered(run):
            self._fill_one_by_one(run, options, price, runs)
            return
        generates = columns["output_len"][runs] > 0
        for alike in (runs[generates], runs[~generates]):
            for begin in range(0, len(alike), _CHUNK):
                self._fill_chunk(run, cost, alike[begin : begin + _CHUNK])

    def _check_sizes(self, run: ResolvedRun, options: RunOptions, runs: IntArray) -> None:
        """Refuse sizes that a single run refuses: the ends of each column are checked for all."""
        for name in SHAPE_COLUMNS:
            sizes = self.columns[name][runs]
            for size in {int(sizes.min()), int(sizes.max())} - {getattr(run, name)}:
                shape = replace(options.shape, **{name: size})
                with _of_row(runs[sizes == size][0]):
                    resolve(run.workload, run.device, replace(options, shape=shape))

    def _fill_one_by_one(
        self, run: ResolvedRun, options: RunOptions, price: PriceChoice, runs: IntArray
    ) -> None:
        columns = self.columns
        for index in runs.tolist():
            sizes = {name: int(self.sizes[name][index]) for name in SHAPE_COLUMNS}
            shape = {name: size for name, size in sizes.items() if size != _LEFT_OUT}
            changed = replace(options, shape=replace(options.shape, **shape))
            try:
                result = estimate(run.workload, run.device, changed, price)
            except (UnsupportedOperatorError, DoesNotFitError) as error:
                columns["reason"][index] = str(error)
                continue
            # tokens of pictures are in the length of a prompt
            for name in ("seq_len", *_FLOAT_FIGURES, *_WORD_FIGURES[:-1], "fits"):
                value = getattr(result, name)
                if value is not None:
                    columns[name][index] = value
            if not result.fits:
                columns["reason"][index] = _short(result.memory_short_bytes)

    def _fill_chunk(self, run: ResolvedRun, price: DevicePrice, runs: IntArray) -> None:
        columns = self.columns
        try:
            figures = scenario_figures(run, {name: columns[name][runs] for name in SHAPE_COLUMNS})
        except UnsupportedOperatorError as error:
            columns["reason"][runs] = str(error)
            return
        short = np.maximum(0.0, figures["memory_bytes"] - run.available_bytes)
        fits = short <= 0
        columns["memory_short_bytes"][runs], columns["fits"][runs] = short, fits
        for name, column in figures.items():
            if name in {"memory_bytes", "flop", "bytes", "tier"}:
                columns[name][runs] = column
            else:  # those of a run that does not fit stay unknown
                columns[name][runs[fits]] = column[fits]
        columns["bound"][runs[~fits]] = "memory_capacity"
        columns["reason"][runs[~fits]] = [_short(size) for size in short[~fits].tolist()]
        self._add_prices(price, runs)

    def _add_prices(self, price: DevicePrice, runs: IntArray) -> None:
        if price.usd_per_hour is None:
            return
        columns = self.columns
        columns["usd_per_hour"][runs] = price.usd_per_hour
        columns["offer"][runs] = price.offer or ""
        costs: tuple[tuple[str, str, Callable[[FloatArray, FloatArray], FloatArray]], ...] = (
            ("cost_usd_per_1000", "throughput_per_s", usd_per_1000_inferences),
            ("cost_usd_per_million_tokens", "tokens_per_s", usd_per_million_tokens),
        )
        for name, rate_name, cost in costs:
            rated = runs[columns[rate_name][runs] > 0]  # NaN where there is no rate
            hourly = np.full(len(rated), price.usd_per_hour)
            columns[name][rated] = cost(hourly, columns[rate_name][rated])


def _short(missing_bytes: float) -> str:
    return f"does not fit: {missing_bytes / 1e9:,.1f} GB short"


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

"""Estimates of many runs at once: columns in, columns out, the same figures as one by one.

Runs of one workload on one device differ in their sizes alone, so they are lowered together
(`accelsim.workloads.lowering`), their distinct operators are costed in one call, and the device's
schedule is worked out in closed form (`accelsim.estimation.schedule`). Runs
that this does not cover (training, hosts, captured modules, calibrated CPUs, overlays of FPGAs,
compiled graphs) go through `estimate`, one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from numpy.typing import NDArray

from accelsim.arguments import checked
from accelsim.confidence.quantiles import Z90
from accelsim.confidence.residual import run_log_sigmas
from accelsim.cost.registry import operator_costs
from accelsim.cost.stack import on_stack
from accelsim.cost.table import CostTable, Tier
from accelsim.economics.device_price import DevicePrice, device_price
from accelsim.economics.result import usd_per_1000_inferences, usd_per_million_tokens
from accelsim.errors import DoesNotFitError, InvalidValueError, UnsupportedOperatorError
from accelsim.estimation.estimate import estimate
from accelsim.estimation.evidence import has_own_spread, residual_log_sigma
from accelsim.estimation.likeness import Setting, model_kinds
from accelsim.estimation.options import (
    EstimateKeywords,
    PriceChoice,
    RunOptions,
    options_and_price,
)
from accelsim.estimation.run import ResolvedRun, resolve
from accelsim.estimation.schedule import Schedule, device_settings
from accelsim.frozen import frozen
from accelsim.hardware.profile import CpuProfile, DeviceProfile, GpuProfile
from accelsim.plain import Document, Values
from accelsim.simulation.device_settings import device_time_s
from accelsim.workloads.graph import FloatArray, IntArray, is_kind
from accelsim.workloads.lowering import LoweredBatch, ShapeColumns, lower
from accelsim.workloads.operator import CONTRACTION_KINDS, Phase
from accelsim.workloads.options import ModelOptions

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
#: Scenarios costed in one call; more take memory without saving time.
_CHUNK = 1024
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
    workload: str | Sequence[str],
    device: str | Sequence[str],
    options: RunOptions | None = None,
    price: PriceChoice | None = None,
    *,
    shapes: Values | None = None,
    **keywords: Unpack[EstimateKeywords],
) -> EstimateColumns:
    """Estimate many runs: one per place of the columns.

    Args:
        workload: A name, or one per run.
        device: A name, or one per run.
        options: What runs; the same for all but the sizes.
        price: Which price; the cheapest on-demand offer where None.
        shapes: Columns batch, seq_len, output_len and image_size: one value or one per run; those
            left out are the options'.
        keywords: Fields of `RunOptions` and of `PriceChoice`, the same for all runs.

    Returns:
        A row per run. One that cannot run or does not fit has a reason instead of figures.

    Raises:
        InputError: If a name or option is wrong, or columns are of different lengths.
    """
    chosen, paid = options_and_price(options, price, keywords)
    asked = _asked(workload, device, shapes or {})
    count = len(asked["workload"])
    answer = empty_columns(count)
    pairs = np.char.add(np.char.add(asked["workload"], "\n"), asked["device"])
    for pair in np.unique(pairs):
        runs = np.flatnonzero(pairs == pair)
        model, name = str(pair).split("\n")
        _answer_pair(answer, runs, model, name, asked, chosen, paid)
    return EstimateColumns(answer)


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
        columns[name] = _sizes(name, shapes[name]) if name in shapes else np.asarray(_LEFT_OUT)
    try:
        arrays = np.broadcast_arrays(*(np.atleast_1d(column) for column in columns.values()))
    except ValueError:
        lengths = {name: len(np.atleast_1d(column)) for name, column in columns.items()}
        raise InvalidValueError("shapes", lengths, "columns of one length, or of one") from None
    return dict(zip(columns, arrays, strict=True))


def _sizes(name: str, given: Any) -> NDArray[Any]:
    """A column of sizes as the caller has it.

    Raises:
        InvalidValueError: If one is negative or no whole number; `resolve` knows the other limits.
    """
    column = np.asarray(given)
    if not np.issubdtype(column.dtype, np.integer):
        raise InvalidValueError(f"shapes[{name!r}]", column.dtype, "whole numbers")
    if (column < 0).any():
        raise InvalidValueError(f"shapes[{name!r}]", int(column.min()), "no negative sizes")
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
    run = resolve(workload, device, options)
    cost = device_price(run.device, price)
    answer["workload"][runs], answer["device"][runs] = run.workload.name, run.device.name
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
                resolve(run.workload, run.device, replace(options, shape=sizes))


def _is_covered(run: ResolvedRun) -> bool:
    """Whether runs of this kind are answered together."""
    device = run.device
    return (
        run.mode == "inference"
        and run.workload.family is not None
        and run.host is None
        and run.steps == 1
        and run.stack_path.fuses == "nothing"
        and (isinstance(device, GpuProfile) or _is_plain_cpu(device, run.heap))
    )


def _is_plain_cpu(device: DeviceProfile, heap: str) -> bool:
    """Whether a CPU has no calibration, whose costs depend on a row's neighbours."""
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
        for name in (*_FLOAT_FIGURES, *_WORD_FIGURES[:-1], "fits"):
            value = getattr(result, name)
            if value is not None:
                answer[name][place] = value
        if not result.fits:
            answer["reason"][place] = _short(result.memory_short_bytes)


def _short(missing_bytes: float) -> str:
    return f"does not fit: {missing_bytes / 1e9:,.1f} GB short"


@frozen(eq=False)
class _PassColumns:
    """One pass in every scenario of a chunk: how often it runs, and its lowered batches."""

    name: str
    repeats: FloatArray
    batches: tuple[LoweredBatch, ...]


def _answer_chunk(
    answer: dict[str, NDArray[Any]], runs: IntArray, run: ResolvedRun, price: DevicePrice
) -> None:
    sizes = {name: answer[name][runs] for name in SHAPE_COLUMNS}
    try:
        passes = _pass_columns(run, sizes)
        figures = _figures(run, sizes, passes)
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


def _pass_columns(run: ResolvedRun, sizes: Mapping[str, IntArray]) -> list[_PassColumns]:
    """The passes of all scenarios, which generate tokens or do not."""
    batch, prompt, tokens = sizes["batch"], sizes["seq_len"], sizes["output_len"]
    target_len = run.workload.default.target_len
    always: Document = {"batch": batch, "image_size": sizes["image_size"]}
    always["target_len"] = target_len
    if not tokens[0]:
        shapes = ShapeColumns.of(**always, seq_len=prompt)
        return [_PassColumns("forward", np.ones(len(batch)), _lower(run, shapes, Phase.FORWARD))]
    shapes = ShapeColumns.of(**always, seq_len=prompt)
    passes = [_PassColumns("prefill", np.ones(len(batch)), _lower(run, shapes, Phase.PREFILL))]
    first = np.ones_like(prompt) if target_len else prompt
    for context, repeats in zip(*_decode_columns(first, tokens - 1), strict=True):
        step = ShapeColumns.of(**always, seq_len=1, context_len=context, source_len=prompt)
        passes.append(_PassColumns("decode", repeats, _lower(run, step, Phase.DECODE)))
    return passes


def _decode_columns(first: IntArray, steps: IntArray) -> tuple[list[IntArray], list[FloatArray]]:
    """Contexts of the first, middle and last step, and how many steps each stands for; see
    `accelsim.estimation.passes.decode_contexts`. One that stands for none has a context of 1, which
    every model can hold.
    """
    last = np.maximum(first + steps - 1, first)
    is_long, is_any, is_pair = steps > 2, steps > 0, steps == 2
    ends = np.where(is_long, steps / 6, 0.0)
    repeats = [
        np.where(is_long, ends, 1.0 * is_any),
        np.where(is_long, 4 * steps / 6, 0.0),
        np.where(is_long, ends, 1.0 * is_pair),
    ]
    contexts = (first, (first + last) // 2, last)
    return [np.where(n > 0, c, 1) for c, n in zip(contexts, repeats, strict=True)], repeats


def _lower(run: ResolvedRun, shapes: ShapeColumns, phase: Phase) -> tuple[LoweredBatch, ...]:
    model = ModelOptions(precision=run.precision, fused_attention=run.fused_attention)
    return lower(run.workload, model, shapes, phase=phase)


def _figures(
    run: ResolvedRun, sizes: Mapping[str, IntArray], passes: Sequence[_PassColumns]
) -> dict[str, NDArray[Any]]:
    """Figures of every scenario, whether it fits or not; see `Simulation` and `Estimate`."""
    batch, tokens = sizes["batch"], sizes["output_len"]
    done = [_pass_figures(run, p, len(batch)) for p in passes]
    repeats = [p.repeats for p in passes]
    latency = _weighted(done, repeats, "latency_s")
    period = np.minimum(_weighted(done, repeats, "period_s"), latency)
    energy = _weighted(done, repeats, "energy_j")
    sigma = np.maximum(_log_sigma(done, repeats), _alike_log_sigma(run, passes[0], done))
    spread = np.exp(Z90 * sigma)
    rate = batch / period
    figures: dict[str, NDArray[Any]] = {
        "latency_s": latency,
        "latency_low_s": latency / spread,
        "latency_high_s": latency * spread,
        "throughput_per_s": rate,
        "energy_j": energy,
        "average_power_w": energy / period,
        "energy_per_sample_j": energy / batch,
        "memory_bytes": _memory_bytes(sizes, passes[0]),
        "flop": _weighted(done, repeats, "flop"),
        "bytes": _weighted(done, repeats, "bytes"),
        "tier": done[0].tier,
        "bound": _longest_bound(done, repeats),
    }
    if tokens[0]:
        steps = sum(repeats[1:])
        stepped = _weighted(done[1:], repeats[1:], "latency_s")
        unknown = np.full(len(batch), np.nan)
        figures["time_to_first_token_s"] = done[0].latency_s
        figures["time_per_output_token_s"] = np.divide(
            stepped, steps, out=unknown, where=np.asarray(steps) > 0
        )
        figures["tokens_per_s"] = rate * tokens
    return figures


def _alike_log_sigma(
    run: ResolvedRun, first: _PassColumns, done: Sequence[_PassFigures]
) -> FloatArray:
    """Spread of measured runs like each; see `Simulation.log_sigma`."""
    sigma = np.zeros(len(first.repeats))
    if has_own_spread(run.device, Tier(done[0].tier[0])):
        return sigma
    for lowered in first.batches:
        flop, generates = lowered.flop * lowered.repeat_count, first.name == "prefill"
        kinds = model_kinds(lowered.kind, flop, generates=generates)
        for model in np.unique(kinds).tolist():
            setting = Setting.of(run.mode, run.precision, model)
            alike = residual_log_sigma(str(run.device.device_class), setting)
            sigma[lowered.scenario[kinds == model]] = alike
    return sigma


def _weighted(
    passes: Sequence[_PassFigures], repeats: Sequence[FloatArray], name: str
) -> FloatArray:
    """Sum of a figure over passes, each as often as it runs."""
    parts = [getattr(p, name) * count for p, count in zip(passes, repeats, strict=True)]
    total: FloatArray = np.sum(parts, axis=0)
    return total


def _memory_bytes(sizes: Mapping[str, IntArray], first: _PassColumns) -> FloatArray:
    """Weights, live activations and cache; see `accelsim.cost.memory.inference_footprint`."""
    memory = np.empty(len(sizes["batch"]))
    for lowered in first.batches:
        cached = sizes["batch"] * (sizes["seq_len"] + sizes["output_len"])
        cache = lowered.kv_bytes_per_token * cached[lowered.scenario] * bool(sizes["output_len"][0])
        memory[lowered.scenario] = lowered.parameter_bytes + lowered.peak_live_bytes() + cache
    return memory


class _PassFigures:
    """What one pass takes in each scenario, shape (s,), and its rows for the interval.

    Attributes:
        latency_s: One run alone.
        period_s: Time per run, back to back.
        energy_j: Energy per run in steady state; NaN where unknown.
        flop: Model FLOP.
        bytes: Bytes moved.
        context_s: Time weighted with the spread that all rows share.
        device_s: Time of all rows.
        bound: What limits it.
        tier: Where the parameters come from.
        rows: Scenario, kind, time, launches, spread and shared spread of each distinct row.
    """

    def __init__(self, count: int) -> None:
        self.latency_s, self.period_s, self.energy_j = (np.empty(count) for _ in range(3))
        self.flop, self.bytes = np.empty(count), np.empty(count)
        self.context_s, self.device_s = np.empty(count), np.empty(count)
        self.bound, self.tier = (np.empty(count, dtype=object) for _ in range(2))
        self.rows: tuple[list[NDArray[Any]], ...] = tuple([] for _ in range(6))


def _pass_figures(run: ResolvedRun, columns: _PassColumns, count: int) -> _PassFigures:
    figures = _PassFigures(count)
    for lowered in columns.batches:
        for part, parameters in _priced_alike(run, lowered):
            rows, is_decode = part.distinct_rows(), columns.name == "decode"
            kernels = operator_costs(rows, run.device, run.execution, parameters)
            table = on_stack(kernels, rows, run.stack_effect, is_decode=is_decode)
            _fill(figures, run, part, table, is_decode=is_decode)
    return figures


def _priced_alike(run: ResolvedRun, lowered: LoweredBatch) -> Iterator[tuple[LoweredBatch, Any]]:
    """Scenarios with the parameters of their costs: a CPU's depend on whether all weights of a
    graph stay in its last cache.
    """
    parameters = run.parameters
    if not isinstance(run.device, CpuProfile):
        yield lowered, parameters
        return
    from accelsim.cost.cpu import cpu_parameters
    from accelsim.cost.cpu.machine import cpu_machine

    values = parameters or cpu_parameters()
    capacity = cpu_machine(lowered.distinct_rows(), run.device, run.execution, values)
    last = capacity.level_capacity_bytes[-1] if len(capacity.level_capacity_bytes) else 0.0
    is_cold = lowered.weight_bytes @ lowered.repeat_count > last
    for cold in np.unique(is_cold).tolist():
        yield lowered.take(is_cold == cold), replace(values, weights_cold=bool(cold))


def _fill(
    figures: _PassFigures,
    run: ResolvedRun,
    lowered: LoweredBatch,
    table: CostTable,
    *,
    is_decode: bool,
) -> None:
    """Figures of one batch of scenarios from the costs of its distinct rows."""
    at, shape, launches = lowered.scenario, lowered.flop.shape, lowered.repeat_count
    settings = device_settings(run, 1.0, is_decode=is_decode)
    time_s = device_time_s(table, settings).reshape(shape)
    schedule = Schedule.of(lowered, time_s, table.dispatch_s.reshape(shape), settings)
    figures.latency_s[at], figures.period_s[at] = schedule.latency_and_period_s()
    rated = table.time_s.reshape(shape)
    dynamic = table.energy_j.reshape(shape) @ launches
    idle_j = np.nan if settings.idle_w is None else settings.idle_w * figures.period_s[at]
    figures.energy_j[at] = dynamic + idle_j
    is_matrix = is_kind(lowered.kind, CONTRACTION_KINDS)
    figures.flop[at] = lowered.flop @ (launches * is_matrix)
    moved = lowered.read_bytes + lowered.weight_bytes + lowered.write_bytes
    figures.bytes[at] = moved @ launches
    figures.bound[at] = schedule.bound(rated, table.bound.reshape(shape), launches)
    figures.tier[at] = table.tier.value
    figures.device_s[at] = rated @ launches
    shared_s = np.asarray(table.time_s * table.context_log_sigma)
    figures.context_s[at] = shared_s.reshape(shape) @ launches
    shared = table.log_sigma if table.shared_log_sigma is None else table.shared_log_sigma
    columns: tuple[NDArray[Any], ...] = (
        np.repeat(at, shape[1]),
        np.tile(lowered.kind, shape[0]),
        table.time_s,
        np.tile(launches, shape[0]),
        table.log_sigma,
        shared,
    )
    for kept, column in zip(figures.rows, columns, strict=True):
        kept.append(column)


def _longest_bound(passes: Sequence[_PassFigures], repeats: Sequence[FloatArray]) -> NDArray[Any]:
    """Bound of the pass that takes the most time."""
    times = [p.latency_s * count for p, count in zip(passes, repeats, strict=True)]
    longest = np.stack(times).argmax(axis=0)
    bounds = np.stack([p.bound for p in passes])
    found: NDArray[Any] = bounds[longest, np.arange(bounds.shape[1])]
    return found


def _log_sigma(passes: Sequence[_PassFigures], repeats: Sequence[FloatArray]) -> FloatArray:
    """Spread of ln(true / predicted) of each scenario; see `Simulation.log_sigma` and
    `accelsim.confidence.residual.run_log_sigma`.
    """
    columns: list[list[NDArray[Any]]] = [[] for _ in range(6)]
    for p, often in zip(passes, repeats, strict=True):
        rows = [np.concatenate(column) for column in p.rows]
        rows[2] = rows[2] * often[rows[0]]
        for kept, column in zip(columns, rows, strict=True):
            kept.append(column)
    rows_log_sigma = run_log_sigmas(*map(np.concatenate, columns))
    context = _weighted(passes, repeats, "context_s") / _weighted(passes, repeats, "device_s")
    return np.asarray(np.hypot(rows_log_sigma, context))

"""Ratios and spreads of software stacks, from published speeds of whole networks.

ln(measured / modelled) of a row is the sum over families of operators of their share of its time
times ln of their ratio. A ratio is what all stacks have in common on a class of devices in a mode,
and what a stack adds; both are drawn towards none (ridge regression as a Gaussian prior: Rasmussen
and Williams, Gaussian Processes for Machine Learning, 2006, section 2.1), and rows of one stack on
one board share an error, so that many rows of one board weigh little more than one. The spread of a
stack is that of its rows about predictions that have not seen their board, drawn towards that of
all stacks of the class. In a family of operators each row counts by its share of the time there,
drawn towards the spread of all families.

Chips are unlike each other as boards of GPUs are not, and have a stack each: what their rows say of
it is drawn to none by a wider prior, ratios are of arithmetic alone, so that shares are taken where
the fit puts them, and a stack of chips without rows has the spread of chips about the bare model,
each chip counting once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from accelsim.calibration.overlay import number
from accelsim.catalog.stacks import (
    FAMILIES,
    UNMEASURED_LOG_SIGMA,
    Achieved,
    Spread,
    stack,
    stack_names,
)
from accelsim.confidence.quantiles import small_sample_ratio
from accelsim.cost.stack import operator_families
from accelsim.cost.table import CostTable
from accelsim.estimation.simulate import Simulation, simulated
from accelsim.scoreboard.asic_networks import NETWORKS_SCHEMA, network_row
from accelsim.scoreboard.data_folder import DataFolder
from accelsim.scoreboard.measured_runs import MeasuredRun
from accelsim.scoreboard.published_runs import PREDICTED_S, PublishedRun, published_row
from accelsim.scoreboard.tiers import choose
from accelsim.workloads.graph import FloatArray
from tools.refit.files import left_out_folder
from tools.scoreboard.published import PUBLISHED_SCHEMA

#: Standard deviations of the prior on ln(ratio): of what all stacks of a class share, and of what
#: one adds; and of the errors that rows of one stack on one board share, and of each row. Chosen on
#: the rows, each predicted with its board left out. Estimate.
_SHARED, _OWN, _BOARD, _ROW = 0.08, 0.12, 0.18, 0.12
#: The second of matrix chips. Estimate: as far as chips lie from the bare model.
_OWN_OF_CHIPS: Final = 0.35
#: Times that shares of chips are taken anew where the fit puts their ratios.
_ROUNDS: Final = 4
#: Boards of a class from which on ratios are fitted, each scored by the others; fewer keep the
#: model's times. From more on a spread is what these rows say.
_LEAST_BOARDS: Final = 2
_SPREAD_BOARDS: Final = 3
#: Rows' worth of the class's spread in a stack's.
_PRIOR_ROWS: Final = 6.0
#: Spreads that no published row says: of CPUs the operators were measured under PyTorch, and the
#: cost model of overlays is fitted to whole networks on theirs.
_FIXED: Final[Mapping[tuple[str, str], float]] = {("pytorch", "cpu"): 0.0, ("dpu", "fpga"): 0.0}
#: Stacks whose own ratios hold no better than none outside their rows: in other tables TensorRT is
#: 6.5 % off without and 6.8 % with them, llama.cpp 6.6 and 7.7 % (medians).
_PLAIN: Final = frozenset({"tensorrt", "tensorrt-llm", "llama-cpp"})
#: Stacks, and the board that says what an SM reads per clock in their own kernels.
_CORE_BYTES_OF: Final = frozenset({("llama-cpp", "a100-pcie-80gb")})
_CHIPS: Final = "asic"
_MARK: Final = "# Fitted by python -m tools.refit --whole-models"


@dataclass(frozen=True, slots=True)
class _Row:
    """A row's place, its ln(measured / modelled), spread of its operators, and shares of time; of
    a chip's, the residual about the bare model, too.
    """

    stack: str
    device_class: str
    mode: str
    board: str
    residual: float
    log_sigma: float
    shares: Mapping[str, float]
    bare: float = 0.0


def refit_whole_models(folder: DataFolder, out: Path, say: Callable[[str], None]) -> None:
    """Fit and write the ratios and spreads of all stacks.

    Args:
        folder: Tables of the suite `published`.
        out: Folder of the stacks' files.
        say: Called with a line of text per stack.
    """
    rows = _linearised(_measured(folder))
    boards = sorted({row.board for row in rows})
    usable = [row for row in rows if _is_measured(rows, row)]
    fits = {board: _fit([row for row in usable if row.board != board]) for board in ("", *boards)}
    scored = [(row, row.residual - _explained(row, fits[row.board])) for row in rows]
    left_out = [f"{_MARK}: stacks without the rows of a board."]
    for name in stack_names():
        lines = [*_achieved(name, fits[""], usable), *_spreads(name, scored)]
        path = out / f"{name}.yaml"
        head = path.read_text(encoding="utf-8").partition(_MARK)[0].rstrip()
        path.write_text("\n".join([head, f"{_MARK}.", *lines, ""]), encoding="utf-8")
        say(f"{name}: {len(lines)} lines")
        own = sorted({row.board for row in rows if row.stack == name})
        left_out += [f"{name}:"] if own else []
        for board in own:
            lines = _left_out(name, board, fits[board], scored)
            left_out += [f"  {board}:{'' if lines else ' {}'}", *(f"    {line}" for line in lines)]
    text = "\n".join([*left_out, ""])
    (left_out_folder(out) / "stacks.yaml").write_text(text, encoding="utf-8")
    chips = [row for row in rows if _is_chip(row)]
    if chips:
        say(f"unmeasured_log_sigma of chips: {number(_between_chips(chips))}")


def _left_out(
    name: str, board: str, fit: Mapping[Key, float], scored: Sequence[tuple[_Row, float]]
) -> list[str]:
    """Lines of a stack without a board; of a chip whose stack has no other, how chips spread."""
    others = [(row, error) for row, error in scored if row.board != board]
    rows = [row for row, _ in others]
    lines = [*_achieved(name, fit, rows), *_spreads(name, others)]
    chips = [row for row in rows if _is_chip(row)]
    if not lines and any(_is_chip(row) for row, _ in scored if row.board == board):
        head = f"device_class: {_CHIPS}, mode: {chips[0].mode}"
        sigma = number(_between_chips(chips))
        lines = ["spreads:", f"  - {{{head}, log_sigma: {sigma}, rows: 0}}"]
    return [*lines, "core_bytes: null"] if (name, board) in _CORE_BYTES_OF else lines


def _measured(folder: DataFolder) -> list[MeasuredRun]:
    """Rows of both suites that can be run."""
    rows = [
        *map(published_row, folder.records(PUBLISHED_SCHEMA)),
        *map(network_row, folder.records(NETWORKS_SCHEMA)),
    ]
    return [row for row in rows if row.run is not None]


def _linearised(measured: Sequence[MeasuredRun]) -> list[_Row]:
    """Rows at the model's times; those of chips where the fit of all puts their ratios."""
    rows = [_row(row, {}) for row in measured]
    for _ in range(_ROUNDS):
        fit = _fit([row for row in rows if _is_measured(rows, row)])
        rows = [
            replace(_row(run, _ratios(fit, row)), bare=row.bare) if _is_chip(row) else row
            for run, row in zip(measured, rows, strict=True)
        ]
    return rows


def _is_chip(row: _Row) -> bool:
    return row.device_class == _CHIPS


def _ratios(fit: Mapping[Key, float], row: _Row) -> dict[str, float]:
    """Ratios of a row's stack, as far as a file may hold them."""
    place = (row.device_class, row.mode)
    ratios = {family: _ratio(fit, row.stack, place, family) for family in FAMILIES}
    return {family: min(max(ratio, 0.2), 5.0) for family, ratio in ratios.items()}


def _row(measured: MeasuredRun, ratios: Mapping[str, float]) -> _Row:
    """A row's residual about the bare model, by its shares at given ratios."""
    asked: PublishedRun = measured.run  # type: ignore[assignment]
    run = asked.run
    place = {"device_class": str(run.device.device_class), "mode": run.mode}
    achieved = [Achieved(**place, family=name, time_ratio=x) for name, x in ratios.items()]
    spreads = (Spread(**place, log_sigma=0.0, rows=0),)
    plain = run.stack.model_copy(update={"achieved": tuple(achieved), "spreads": spreads})
    parameters = choose(run.device, "best").parameters
    simulation = simulated(replace(run, stack=plain), asked.passes, parameters)
    shares = _shares(simulation, asked)
    explained = sum(shares[name] * float(np.log(x)) for name, x in ratios.items())
    residual = float(np.log(measured.measured_s / PREDICTED_S[asked.metric](simulation)))
    return _Row(
        stack=run.stack.name,
        **place,
        board=run.device.whole_name,
        residual=residual + explained,
        log_sigma=simulation.operator_log_sigma,
        shares=shares,
        bare=residual,
    )


def _shares(simulation: Simulation, asked: PublishedRun) -> dict[str, float]:
    """Shares of the time by family; the rest is the host's."""
    shares = dict.fromkeys(FAMILIES, 0.0)
    whole_s = 0.0
    is_token = asked.metric == "decode_tokens_per_s"
    for one in simulation.passes:
        if is_token and one.name != "decode":
            continue
        whole_s += max(one.result.steady_state_s, one.table.total_time_s) * one.repeats
        names = np.array(operator_families(one.graph.kind))
        for family in FAMILIES:
            own = (names != "") if one.name == "decode" else names == family
            if (one.name == "decode") == (family == "decode"):
                shares[family] += float(_scaled_s(one.table, asked)[own].sum()) * one.repeats
    return {family: time_s / whole_s for family, time_s in shares.items()}


def _scaled_s(table: CostTable, asked: PublishedRun) -> FloatArray:
    """Time of each row that a ratio is of: all, or what arithmetic sets the pace of."""
    if asked.run.device.device_class != _CHIPS:
        return table.time_s
    return np.where(table.compute_s > table.memory_s, table.compute_s, 0.0)


def _is_measured(rows: Sequence[_Row], row: _Row) -> bool:
    """Whether enough boards of a row's class ran in its mode to tell a stack from a board."""
    place = (row.device_class, row.mode)
    return len({other.board for other in rows if _is_at(other, place)}) >= _LEAST_BOARDS


Key = tuple[str, str, str, str]


def _features(row: _Row) -> dict[Key, float]:
    """Weights of the shared and own ln(ratios) in a row."""
    place = (row.device_class, row.mode)
    shared = {("", *place, family): share for family, share in row.shares.items() if share}
    own = {(row.stack, *place, family): share for family, share in row.shares.items() if share}
    return shared | own


def _fit(rows: Sequence[_Row]) -> dict[Key, float]:
    """Posterior mean of every ln(ratio)."""
    keys = sorted({key for row in rows for key in _features(row)})
    if not keys:
        return {}
    place = {key: index for index, key in enumerate(keys)}
    design = np.zeros((len(rows), len(keys)))
    for index, row in enumerate(rows):
        for key, share in _features(row).items():
            design[index, place[key]] = share
    prior = np.array([_prior(key) for key in keys]) ** 2
    groups = [(row.stack, row.board, row.mode) for row in rows]
    together = np.array([[first == second for second in groups] for first in groups])
    noise = _BOARD**2 * together + _ROW**2 * np.eye(len(rows))
    covariance = (design * prior) @ design.T + noise
    residual = np.array([row.residual for row in rows])
    mean: FloatArray = prior * (design.T @ np.linalg.solve(covariance, residual))
    return dict(zip(keys, mean.tolist(), strict=True))


def _prior(key: Key) -> float:
    if not key[0]:
        return _SHARED
    return _OWN_OF_CHIPS if key[1] == _CHIPS else _OWN


def _explained(row: _Row, fit: Mapping[Key, float]) -> float:
    place = (row.device_class, row.mode)
    return sum(
        float(np.log(_ratio(fit, row.stack, place, family))) * share
        for family, share in row.shares.items()
    )


def _ratio(fit: Mapping[Key, float], name: str, place: tuple[str, str], family: str) -> float:
    """Ratio of a family; 1 for a stack of which no row has a share in it."""
    own = fit.get((name, *place, family))
    if own is None or name in _PLAIN:
        return 1.0
    return float(np.exp(fit.get(("", *place, family), 0.0) + own))


def _places(name: str) -> list[tuple[str, str]]:
    known = stack(name)
    return [(device_class, mode) for device_class in known.runs_on for mode in known.modes]


def _achieved(name: str, fit: Mapping[Key, float], rows: Sequence[_Row]) -> list[str]:
    """Lines of the ratios of a stack with rows."""
    lines = []
    for place in _places(name):
        mine = [row for row in rows if _is_at(row, place) and row.stack == name]
        for family in FAMILIES if mine and name not in _PLAIN else ():
            if any(row.shares[family] for row in mine):
                ratio = number(_ratio(fit, name, (place[0], mine[0].mode), family))
                head = f"device_class: {place[0]}, mode: {place[1]}, family: {family}"
                lines.append(f"  - {{{head}, time_ratio: {ratio}}}")
    return ["achieved:", *lines] if lines else []


def _spreads(name: str, rows: Sequence[tuple[_Row, float]]) -> list[str]:
    """Lines of the spreads of a stack with rows, by the residual of each."""
    lines = []
    for place in _places(name):
        head = f"device_class: {place[0]}, mode: {place[1]}"
        if (name, place[0]) in _FIXED:
            lines.append(f"  - {{{head}, log_sigma: {_FIXED[name, place[0]]}, rows: 0}}")
            continue
        own = [(row, error) for row, error in rows if (row.device_class, row.mode) == place]
        counts = {
            family: sum(row.stack == name and _is_most(row, family) for row, _ in own)
            for family in ("", *FAMILIES)
        }
        for family, count in counts.items():
            if count:
                about = f"{head}, family: {family}" if family else head
                sigma = number(_spread(name, own, family))
                lines.append(f"  - {{{about}, log_sigma: {sigma}, rows: {count}}}")
    return ["spreads:", *lines] if lines else []


def _share(row: _Row, family: str) -> float:
    """Share of a row's time in a family; all of it in no family's name."""
    return row.shares[family] if family else 1.0


def _is_most(row: _Row, family: str) -> bool:
    return not family or family == max(row.shares, key=row.shares.__getitem__)


def _is_at(row: _Row, place: tuple[str, str]) -> bool:
    """Whether a row says something of a class and mode; chips have rows of inference alone."""
    return row.device_class == place[0] and (row.mode == place[1] or _is_chip(row))


def _spread(name: str, rows: Sequence[tuple[_Row, float]], family: str = "") -> float:
    """Root mean square of what operators do not explain, drawn to that of all stacks; as far as
    stacks differ where less than a row of this one spends its time in the family.
    """
    beyond = np.array([max(error**2 - row.log_sigma**2, 0.0) for row, error in rows])
    if not len(beyond):
        return UNMEASURED_LOG_SIGMA
    share = np.array([_share(row, family) for row, _ in rows])
    mine = share * np.array([row.stack == name for row, _ in rows])
    of_class = _drawn(beyond, share, float(beyond.mean()))
    sigma = float(np.sqrt(_drawn(beyond, mine, of_class)))
    few = len({row.board for row, _ in rows}) < _SPREAD_BOARDS or mine.sum() < 1.0
    return max(sigma, UNMEASURED_LOG_SIGMA) if few else sigma


def _drawn(squares: FloatArray, weights: FloatArray, prior: float) -> float:
    """Weighted mean, with the prior as `_PRIOR_ROWS` more."""
    total = float(squares @ weights) + _PRIOR_ROWS * prior
    return total / float(weights.sum() + _PRIOR_ROWS)


def _between_chips(rows: Sequence[_Row]) -> float:
    """Spread of one more chip about the bare model: the root mean square of chips, each counting
    once, for so few.
    """
    chips = sorted({row.board for row in rows})
    squares = [np.mean([row.bare**2 for row in rows if row.board == chip]) for chip in chips]
    return float(np.sqrt(np.mean(squares))) * small_sample_ratio(len(chips))

"""``accelsim compare``: several models on several devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

from accelsim.cli.progress import progress_bar
from accelsim.cli.report_file import PageLimits, command_text
from accelsim.cli.result_writer import ResultWriter, with_output
from accelsim.errors import InvalidValueError
from accelsim.estimation.options import PriceChoice, RunOptions
from accelsim.frozen import frozen
from accelsim.option import argument, option
from accelsim.plain import Document, grouped

if TYPE_CHECKING:
    from accelsim.estimation.compare import Comparison
    from accelsim.estimation.estimate import Estimate
    from accelsim.hardware.profile import DeviceProfile
    from accelsim.report.chart import Bars
    from accelsim.report.operators import OperatorRun
    from accelsim.report.page import Page

Operators: TypeAlias = "dict[tuple[str, str], list[OperatorRun]]"

#: Devices of a front whose rooflines a page draws.
_MOST_ROOFS = 5
_PAIR = ("workload", "device", "mode", "reason")


def _text(_: str, text: str) -> str:
    return text


@frozen
class CompareOptions:
    """What the models are compared over."""

    devices: tuple[str, ...] = option(
        "Devices, separated by commas; or the words cpu, gpu, fpga, tpu, asic, all.",
        (),
        metavar="D,D,...",
        flags="--devices -d",
        parse=_text,
        repeated=True,
    )
    mode: tuple[str, ...] = option(
        "inference, training or both; may be repeated.",
        (),
        metavar="MODE",
        parse=_text,
        repeated=True,
    )
    device_file: tuple[Path, ...] = option(
        "Device profile of yours (YAML or JSON).",
        (),
        metavar="FILE",
        parse=lambda _, text: Path(text),
        repeated=True,
    )


@with_output
def compare(
    output: ResultWriter,
    options: CompareOptions,
    run: RunOptions,
    price: PriceChoice,
    limits: Annotated[Document, PageLimits],
    models: list[str] = argument("Workload names or files.", "MODEL"),
) -> None:
    """Compare models over devices; the best of each column is marked, and a pair that cannot run
    says why.
    """
    from accelsim.catalog.selection import (
        chosen_devices,
        chosen_modes,
        groups_note,
    )
    from accelsim.estimation.compare import compare as compare_runs

    devices = options.devices
    names, profiles = list(dict.fromkeys(models)), chosen_devices(devices, options.device_file)
    modes = chosen_modes(options.mode or ("inference",))
    _refuse_devices_among(names)
    with progress_bar("comparing", unit="models", quiet=output.quiet):
        comparison = compare_runs(names, profiles, run, price, modes=modes)
    output.note(groups_note(devices))

    def operators(rows: Sequence[Document]) -> Operators:
        return _operators_of_fronts(names, rows, profiles, run)

    emit_comparison(output, comparison, profiles, limits, operators)


def _operators_of_fronts(
    models: Sequence[str],
    rows: Sequence[Document],
    profiles: Sequence[DeviceProfile],
    run: RunOptions,
) -> Operators:
    """Operators of each model and mode on the fastest devices of its front."""
    from accelsim.catalog import workloads as workload_catalog
    from accelsim.estimation.compare import known_best
    from accelsim.estimation.simulate import simulate
    from accelsim.report.operators import OperatorRun
    from accelsim.report.run_page import operator_frame

    by_name = {workload_catalog.workload(model).name: model for model in models}
    devices = {profile.label: profile for profile in profiles}
    done = (row for row in rows if row["reason"] is None)
    groups = grouped(done, itemgetter("workload", "mode"))
    operators_of_fronts: Operators = {}
    for (name, mode), own in groups.items():
        options = replace(run, mode=mode)
        front = sorted(known_best(own), key=lambda row: row["latency_s"])
        operators_of_fronts[name, mode] = [
            OperatorRun(
                devices[row["device"]],
                row["precision"],
                operator_frame(simulate(by_name[name], devices[row["device"]], options)),
            )
            for row in front[:_MOST_ROOFS]
        ]
    return operators_of_fronts


def _refuse_devices_among(models: list[str]) -> None:
    """A list of devices with blanks leaves some of them among the models.

    Raises:
        InvalidValueError: Naming the first.
    """
    from accelsim import catalog
    from accelsim.catalog import workloads as workload_catalog

    known = set(catalog.device_names()) - set(workload_catalog.workload_names())
    for name in models:
        if name.strip(",") in known:
            remedy = "It is a device: write --devices A,B without blanks."
            raise InvalidValueError("model", name, "the name of a workload", remedy)


def emit_comparison(
    output: ResultWriter,
    comparison: Comparison,
    profiles: Sequence[DeviceProfile] | None = None,
    limits: Mapping[str, float | None] | None = None,
    operators: Callable[[Sequence[Document]], Operators] | None = None,
) -> None:
    """Write a comparison: a table per model and mode, or a list of uniform rows. Its page has the
    limits as lines, and the operators on the front.
    """
    from accelsim.estimation.estimate import FIGURES
    from accelsim.files.formats import uniform_rows
    from accelsim.report.tables import COMPARISON_NOTE, comparison_view

    rows = uniform_rows(comparison.to_dict(), (*_PAIR, *FIGURES))
    flat = [
        {key: value for key, value in row.items() if value is not None and key != "operators"}
        for row in rows
    ]
    estimates = [row.estimate for row in comparison.rows if row.estimate is not None]
    note = "\n".join([COMPARISON_NOTE, *comparison.warnings])

    def page() -> Page:
        from accelsim.report.comparison_page import comparison_page

        drawn: Document = {"devices": profiles, **(limits or {})}
        if operators is not None:
            drawn["operators"] = operators(rows)
        return comparison_page(rows, command_text(), **drawn)

    output.emit(
        rows,
        lambda: comparison_view(comparison),
        rows=flat,
        columns=comparison.columns,
        note=note,
        page=page,
        chart=lambda: _rate_bars(estimates),
    )


def _rate_bars(estimates: Sequence[Estimate]) -> Bars:
    from accelsim.report.chart import Bars

    runs = {f"{e.workload}, {e.mode}" for e in estimates}
    shared = f"{runs.pop()}: " if len(runs) == 1 else ""
    names = [e.device if shared else f"{e.workload}, {e.mode}: {e.device}" for e in estimates]
    rates, ends = zip(*map(_rate, estimates), strict=True)
    title = f"{shared}samples or sequences per second, with 90 % intervals"
    return Bars(title, "throughput, 1/s", names, rates, ends)


def _rate(estimate: Estimate) -> tuple[float, tuple[float, float]]:
    """Samples per second, 0 where unknown, and the ends of their interval."""
    rate = estimate.throughput_per_s or 0.0
    low, high, _ = estimate.interval("throughput_per_s")
    return rate, (low or rate, high or rate)

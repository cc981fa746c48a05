"""``accelsim compare``: several models on several devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

from accelsim.cli.report_file import PageLimits
from accelsim.cli.result_writer import ResultWriter, with_output
from accelsim.errors import InvalidValueError
from accelsim.estimation.options import PriceChoice, RunOptions
from accelsim.frozen import frozen
from accelsim.option import argument, option
from accelsim.plain import Document, Values, grouped

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
    from accelsim.catalog.selection import chosen_devices, chosen_modes, groups_note
    from accelsim.estimation.compare import compare as compare_runs

    names, profiles = (
        list(dict.fromkeys(models)),
        chosen_devices(options.devices, options.device_file),
    )
    modes = chosen_modes(options.mode or ("inference",))
    _refuse_devices_among(names)
    with output.progress("comparing", "models"):
        comparison = compare_runs(names, profiles, run, price, modes=modes)
    output.note(groups_note(options.devices))

    def page(rows: Sequence[Document], command: str) -> Page:
        from accelsim.report.comparison_page import comparison_page

        operators = _operators_of_fronts(names, rows, profiles, run)
        return comparison_page(rows, command, devices=profiles, operators=operators, **limits)

    emit_comparison(output, comparison, page)


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

    def operators(row: Values) -> OperatorRun:
        device, model = devices[row["device"]], by_name[row["workload"]]
        frame = operator_frame(simulate(model, device, replace(run, mode=row["mode"])))
        return OperatorRun(device, row["precision"], frame)

    answered = (row for row in rows if row["reason"] is None)
    fronts = {
        key: sorted(known_best(group), key=itemgetter("latency_s"))
        for key, group in grouped(answered, itemgetter("workload", "mode")).items()
    }
    return {key: list(map(operators, front[:_MOST_ROOFS])) for key, front in fronts.items()}


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
    page: Callable[[Sequence[Document], str], Page] | None = None,
) -> None:
    """Write a comparison: a table per model and mode, or a list of uniform rows.

    Args:
        output: Where.
        comparison: The rows.
        page: Makes its page; that of any comparison where None.
    """
    from accelsim.estimation.estimate import FIGURES
    from accelsim.files.formats import uniform_rows
    from accelsim.report.tables import COMPARISON_NOTE, comparison_view

    rows = uniform_rows(comparison.to_dict(), (*_PAIR, *FIGURES))
    flat = [
        {key: value for key, value in row.items() if value is not None and key != "operators"}
        for row in rows
    ]
    output.emit(
        rows,
        lambda _: comparison_view(comparison),
        rows=flat,
        columns=comparison.columns,
        note="\n".join([COMPARISON_NOTE, *comparison.warnings]),
        page=page,
        chart=partial(_rate_bars, comparison),
    )


def _rate_bars(comparison: Comparison) -> Bars:
    """Samples per second, 0 where unknown, and the ends of their intervals."""
    from accelsim.report.chart import Bars

    estimates = [row.estimate for row in comparison.rows if row.estimate is not None]
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

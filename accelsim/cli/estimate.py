"""``accelsim estimate``: one model on one device."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from accelsim.cli.report_file import command_text
from accelsim.cli.result_writer import ResultWriter, with_output
from accelsim.errors import InvalidValueError
from accelsim.plain import Document

if TYPE_CHECKING:
    from accelsim.estimation.batches import BatchCurve
    from accelsim.estimation.estimate import Estimate
    from accelsim.hardware.profile import DeviceProfile
    from accelsim.report.chart import Bars
    from accelsim.report.page import Page


@with_output
def estimate(
    output: ResultWriter,
    model: str,
    device: str | None = None,
    mode: str = "inference",
    offer: str | None = None,
    device_file: Path | None = None,
    max_batch: bool = False,
    batches: str | None = None,
    operators: str = "10",
    *,
    keywords: Document,
) -> None:
    """Estimate the time, energy, memory and cost of one model on one device."""
    from accelsim.estimation.estimate import estimate as estimate_run

    profile = _profile(device, device_file)
    if max_batch or batches is not None:
        _check_alone(batches, max_batch=max_batch, batch=keywords["batch"])
    if batches is not None:
        _check_curve(operators)
        _emit_curve(output, model, profile, batches, {**keywords, "mode": mode, "offer": offer})
        return
    if max_batch:
        keywords = keywords | {"batch": _largest(model, profile, {**keywords, "mode": mode})}
    result = estimate_run(model, profile, mode=mode, offer=offer, **keywords)
    if operators != "10":
        result = _with_operators(result, model, profile, operators, {**keywords, "mode": mode})

    from accelsim.report.tables import estimate_view

    scalars = {key: value for key, value in result.figures().items() if key != "operators"}
    asked = {**keywords, "mode": mode, "offer": offer}
    output.emit(
        result.to_dict(),
        partial(estimate_view, result, profile),
        rows=[scalars],
        page=lambda: _page(model, result, profile, asked),
        chart=partial(_operator_bars, result),
    )


def _check_alone(batches: str | None, *, max_batch: bool, batch: int | None) -> None:
    """Refuse two ways of saying the batch."""
    named = {"--batch": batch, "--batches": batches, "--max-batch": max_batch or None}
    given = [name for name, value in named.items() if value is not None]
    if len(given) > 1:
        raise InvalidValueError(given[0], named[given[0]], f"no value beside {given[1]}")


def _check_curve(operators: str) -> None:
    """Refuse what several batches do not show."""
    if operators != "10":
        raise InvalidValueError("--operators", operators, "no value beside --batches")


def _emit_curve(
    output: ResultWriter,
    model: str,
    profile: DeviceProfile,
    batches: str,
    keywords: Document,
) -> None:
    from accelsim.cli.selection import chosen_batches
    from accelsim.estimation.batches import estimate_batches
    from accelsim.report.tables import batches_view

    curve = estimate_batches(model, profile, chosen_batches(batches), **keywords)
    rows = [
        {name: value for name, value in e.figures().items() if name != "operators"}
        for e in curve.estimates
    ]
    chart = partial(_batch_bars, curve)
    output.emit(curve.to_dict(), lambda: batches_view(curve), rows=rows, chart=chart)


def _operator_bars(result: Estimate) -> Bars:
    from accelsim.report.chart import Bars

    title = f"{result.workload} on {result.device}: largest operators"
    names = [share.name for share in result.operators]
    return Bars(title, "time, s", names, [share.time_s for share in result.operators])


def _batch_bars(curve: BatchCurve) -> Bars:
    from accelsim.report.chart import Bars

    first = curve.estimates[0]
    names = [f"batch {e.batch:,}" for e in curve.estimates]
    rates = [e.throughput_per_s or 0.0 for e in curve.estimates]
    return Bars(f"{first.workload} on {first.device}", "throughput, 1/s", names, rates)


def _largest(model: str, profile: DeviceProfile, keywords: Document) -> int:
    from accelsim.estimation.batches import largest_batch
    from accelsim.estimation.options import PriceKeywords

    paid = PriceKeywords.__annotations__
    of_run = {name: value for name, value in keywords.items() if name not in paid}
    return largest_batch(model, profile, **of_run)


def _with_operators(
    result: Estimate, model: str, profile: DeviceProfile, count: str, keywords: Document
) -> Estimate:
    """The estimate with as many of its operators as asked for."""
    from dataclasses import replace

    from accelsim.estimation.options import options_and_price
    from accelsim.estimation.simulate import simulate

    if count != "all" and not (count.isascii() and count.isdigit()):
        raise InvalidValueError("--operators", count, "a whole number, or all")
    if not result.fits:
        return result
    options, _ = options_and_price(None, None, keywords)
    simulation = simulate(model, profile, options)
    most = None if count == "all" else int(count)
    return replace(result, operators=simulation.largest_operators(most))


def _profile(device: str | None, device_file: Path | None) -> DeviceProfile:
    """The device to estimate: that of the file, which a name given beside it must be."""
    from accelsim import catalog

    if device_file is None:
        if device is None:
            remedy = "See all with: accelsim devices list."
            raise InvalidValueError("device", None, "--device NAME or --device-file FILE", remedy)
        return catalog.device(device)
    profile = catalog.load_device_file(device_file)
    if device is not None and device.lower() not in {profile.name, *profile.aliases}:
        raise InvalidValueError(
            "device", device, f"{profile.name}, the device of {device_file}", "Leave --device out."
        )
    return profile


def _page(model: str, result: Estimate, profile: DeviceProfile, keywords: Document) -> Page:
    from accelsim.estimation.batches import batch_curve, batch_knee
    from accelsim.estimation.options import options_and_price
    from accelsim.estimation.simulate import simulate
    from accelsim.exploration.sensitivity.run import run_changes
    from accelsim.report import run_sections
    from accelsim.report.comparison_page import break_even_section
    from accelsim.report.run_page import run_page

    options, price = options_and_price(None, None, keywords)
    if not result.fits:
        return run_page(result, profile, None, command_text())
    simulation = simulate(model, profile, options)
    curve = batch_curve(model, profile, options, price)
    knee = batch_knee(curve)
    changes = run_changes(model, profile, options, price, result)
    row = {**result.to_dict(), "reason": None, "name": result.device}
    further = (
        run_sections.knee_section(
            [one.figures() for one in curve], None if knee is None else knee.batch
        ),
        run_sections.run_changes_section(result, changes),
        break_even_section([row], [profile], "cost"),
        run_sections.offers_section(
            [(result.device, result.throughput_per_s, result.energy_per_sample_j)]
        ),
        run_sections.accuracy_section([result.device]),
    )
    known = [section for section in further if section is not None]
    return run_page(result, profile, simulation, command_text(), known)

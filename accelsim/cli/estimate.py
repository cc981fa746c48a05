"""``accelsim estimate``: one model on one device."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from accelsim.cli.report_file import command_text
from accelsim.cli.result_writer import ResultWriter, with_changes, with_output
from accelsim.errors import InvalidValueError
from accelsim.estimation.options import PriceChoice, RunOptions, run_options
from accelsim.frozen import frozen
from accelsim.option import argument, option

if TYPE_CHECKING:
    from accelsim.estimation.batches import BatchCurve
    from accelsim.estimation.estimate import Estimate
    from accelsim.hardware.profile import DeviceProfile
    from accelsim.report.chart import Bars
    from accelsim.report.page import Page


@frozen
class EstimateOptions:
    """What is asked of the model."""

    device: str | None = option(
        "Device, or a slice: epyc-7763@8vcpu.", metavar="NAME", flags="--device -d"
    )
    hub: bool = option(
        "MODEL is an id of the Hugging Face Hub: its configuration is fetched, no weights.", False
    )
    gpus: int = option("Number of devices that share the model, as in -d '2 x NAME'.", 1)
    mode: str = option("inference or training.", "inference", "MODE")
    offer: str | None = option(
        "Offer whose price counts: provider/region/instance[:spot]. Default: the cheapest.",
        metavar="ID",
    )
    device_file: Path | None = option(
        "Device profile of yours, instead of --device.", metavar="FILE"
    )
    max_batch: bool = option("Use the largest batch that fits.", False)
    batches: str | None = option(
        "Show a table of these batches, with its knee: the smallest batch with "
        "nine tenths of the highest rate.",
        metavar="N,N,...",
    )
    operators: str = option("Number of operators to list, or all.", "10", "N")


@with_output
def estimate(
    output: ResultWriter,
    options: EstimateOptions,
    run: RunOptions,
    price: PriceChoice,
    model: str = argument(
        "Workload name, or a file: workload, captured module, ONNX, GGUF, HF folder.",
        "MODEL",
    ),
) -> None:
    """Estimate the time, energy, memory and cost of one model on one device."""
    from accelsim.catalog.devices import joined_devices
    from accelsim.estimation.estimate import estimate as estimate_run

    model = f"hub:{model}" if options.hub else model
    run, price = replace(run, mode=options.mode), replace(price, offer=options.offer)
    profile, operators = _profile(options.device, options.device_file), options.operators
    profile = profile if options.gpus == 1 else joined_devices(options.gpus, profile)
    if options.max_batch or options.batches is not None:
        _check_alone(options.batches, max_batch=options.max_batch, batch=run.shape.batch)
    if options.batches is not None:
        if operators != "10":
            raise InvalidValueError("--operators", operators, "no value beside --batches")
        _emit_curve(output, model, profile, options.batches, run, price)
        return
    asked = run
    if options.max_batch:
        from accelsim.estimation.batches import largest_batch

        asked = run_options(run, {"batch": largest_batch(model, profile, run)})
    result = estimate_run(model, profile, asked, price)
    plain = None
    if run.learned is not None:
        plain = estimate_run(model, profile, replace(asked, learned=None), price)
    if operators != "10":
        result = _with_operators(result, model, profile, operators, asked)

    from accelsim.report.tables import estimate_view

    scalars = {key: value for key, value in result.figures().items() if key != "operators"}
    data, view = with_changes(result, partial(estimate_view, result, profile), plain)
    output.emit(
        data,
        view,
        rows=[scalars],
        page=lambda: _page(model, result, profile, asked, price),
        chart=partial(_operator_bars, result),
    )


def _check_alone(batches: str | None, *, max_batch: bool, batch: int | None) -> None:
    """Refuse two ways of saying the batch."""
    named = {"--batch": batch, "--batches": batches, "--max-batch": max_batch or None}
    given = [name for name, value in named.items() if value is not None]
    if len(given) > 1:
        raise InvalidValueError(given[0], named[given[0]], f"no value beside {given[1]}")


def _emit_curve(
    output: ResultWriter,
    model: str,
    profile: DeviceProfile,
    batches: str,
    run: RunOptions,
    price: PriceChoice,
) -> None:
    from accelsim.catalog.selection import chosen_batches
    from accelsim.estimation.batches import estimate_batches
    from accelsim.report.tables import batches_view

    curve = estimate_batches(model, profile, chosen_batches(batches), run, price)
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


def _with_operators(
    result: Estimate, model: str, profile: DeviceProfile, count: str, run: RunOptions
) -> Estimate:
    """The estimate with as many of its operators as asked for."""
    from accelsim.estimation.simulate import simulate

    if count != "all" and not (count.isascii() and count.isdigit()):
        raise InvalidValueError("--operators", count, "a whole number, or all")
    if not result.fits:
        return result
    simulation = simulate(model, profile, run)
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


def _page(
    model: str, result: Estimate, profile: DeviceProfile, options: RunOptions, price: PriceChoice
) -> Page:
    from accelsim.estimation.batches import batch_curve, batch_knee
    from accelsim.estimation.simulate import simulate
    from accelsim.report.estimate_page import cost_sections
    from accelsim.report.run_page import run_page
    from accelsim.report.run_sections import knee_section

    if not result.fits:
        return run_page(result, profile, None, command_text())
    simulation = simulate(model, profile, options)
    curve = batch_curve(model, profile, options, price)
    knee = batch_knee(curve)
    further = (
        knee_section([one.figures() for one in curve], None if knee is None else knee.batch),
        *cost_sections(result.to_dict(), [profile]),
    )
    return run_page(result, profile, simulation, command_text(), further)

"""``accelsim estimate``: one model on one device."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from accelsim.cli.result_writer import ResultWriter, with_output
from accelsim.errors import InvalidValueError
from accelsim.estimation.options import PriceChoice, RunOptions, run_options
from accelsim.frozen import frozen
from accelsim.option import argument, option
from accelsim.plain import Document

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

    model = f"hub:{model}" if options.hub else model
    run, price = replace(run, mode=options.mode), replace(price, offer=options.offer)
    profile = _profile(options.device, options.device_file)
    profile = profile if options.gpus == 1 else joined_devices(options.gpus, profile)
    _check_batch(options, run.shape.batch)
    if options.batches is None:
        _emit_estimate(output, options, model, profile, run, price)
    else:
        _emit_curve(output, options.batches, model, profile, run, price)


def _check_batch(options: EstimateOptions, batch: int | None) -> None:
    """Refuse two ways of saying the batch, and operators of several."""
    values = {
        "--batch": batch,
        "--batches": options.batches,
        "--max-batch": options.max_batch or None,
    }
    flags = [name for name, value in values.items() if value is not None]
    if len(flags) > 1:
        raise InvalidValueError(flags[0], values[flags[0]], f"no value beside {flags[1]}")
    if options.batches is not None and options.operators != "10":
        raise InvalidValueError("--operators", options.operators, "no value beside --batches")


def _emit_estimate(
    output: ResultWriter,
    options: EstimateOptions,
    model: str,
    profile: DeviceProfile,
    run: RunOptions,
    price: PriceChoice,
) -> None:
    from accelsim.estimation.estimate import estimate as estimate_run
    from accelsim.report.tables import estimate_view

    if options.max_batch:
        from accelsim.estimation.batches import largest_batch

        run = run_options(run, {"batch": largest_batch(model, profile, run)})
    result = estimate_run(model, profile, run, price)
    plain = None
    if run.learned is not None:
        plain = estimate_run(model, profile, replace(run, learned=None), price)
    if options.operators != "10":
        result = _with_operators(result, model, profile, options.operators, run)
    output.emit_learned(
        result,
        partial(estimate_view, device=profile),
        plain,
        rows=[_scalars(result)],
        page=lambda _, command: _page(command, model, result, profile, run, price),
        chart=partial(_operator_bars, result),
    )


def _scalars(result: Estimate) -> Document:
    return {name: value for name, value in result.figures().items() if name != "operators"}


def _emit_curve(
    output: ResultWriter,
    batches: str,
    model: str,
    profile: DeviceProfile,
    run: RunOptions,
    price: PriceChoice,
) -> None:
    from accelsim.catalog.selection import chosen_batches
    from accelsim.estimation.batches import estimate_batches
    from accelsim.report.tables import batches_view

    curve = estimate_batches(model, profile, chosen_batches(batches), run, price)
    output.emit(
        curve.to_dict(),
        lambda _: batches_view(curve),
        rows=list(map(_scalars, curve.estimates)),
        chart=partial(_batch_bars, curve),
    )


def _operator_bars(result: Estimate) -> Bars:
    from accelsim.report.chart import Bars

    title = f"{result.workload} on {result.device}: largest operators"
    names = [share.name for share in result.operators]
    return Bars(title, "time, s", names, [share.time_s for share in result.operators])


def _batch_bars(curve: BatchCurve) -> Bars:
    from accelsim.report.chart import Bars

    names = [f"batch {e.batch:,}" for e in curve.estimates]
    rates = [e.throughput_per_s or 0.0 for e in curve.estimates]
    title = f"{curve.estimates[0].workload} on {curve.estimates[0].device}"
    return Bars(title, "throughput, 1/s", names, rates)


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
    command: str,
    model: str,
    result: Estimate,
    profile: DeviceProfile,
    run: RunOptions,
    price: PriceChoice,
) -> Page:
    from accelsim.estimation.batches import batch_curve, batch_knee
    from accelsim.estimation.simulate import simulate
    from accelsim.report.estimate_page import cost_sections
    from accelsim.report.run_page import run_page
    from accelsim.report.run_sections import knee_section

    if not result.fits:
        return run_page(result, profile, None, command)
    simulation = simulate(model, profile, run)
    curve = batch_curve(model, profile, run, price)
    knee = batch_knee(curve)
    further = (
        knee_section([point.figures() for point in curve], None if knee is None else knee.batch),
        *cost_sections(result.to_dict(), [profile]),
    )
    return run_page(result, profile, simulation, command, further)

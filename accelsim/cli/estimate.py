"""``accelsim estimate``: one model on one device."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from accelsim.cli import options as opt
from accelsim.cli.result_writer import ResultWriter
from accelsim.report.formats import OutputFormat

if TYPE_CHECKING:
    from accelsim.economics.offer import Quote
    from accelsim.hardware.profile import DeviceProfile

__all__ = ["estimate"]


def estimate(
    model: Annotated[
        str,
        typer.Argument(help="Workload name, or a file: workload, captured module, HF config.json."),
    ],
    device: Annotated[
        str | None,
        typer.Option("--device", "-d", metavar="NAME", help="Device, or a slice: epyc-7763@8vcpu."),
    ] = None,
    batch: opt.BatchOption = None,
    precision: opt.PrecisionOption = None,
    mode: Annotated[
        str, typer.Option("--mode", metavar="MODE", help="inference or training.")
    ] = "inference",
    execution: opt.ExecutionOption = None,
    heap: opt.HeapOption = "default",
    seq_len: opt.SeqLenOption = None,
    output_len: opt.OutputLenOption = None,
    image_size: opt.ImageSizeOption = None,
    optimizer: opt.OptimizerOption = "adamw",
    unfused_attention: opt.UnfusedOption = False,
    sparse_weights: opt.SparseOption = False,
    host: opt.HostOption = None,
    offer: Annotated[
        str | None,
        typer.Option(
            "--offer",
            metavar="ID",
            help="Price to use: provider/region/instance[:spot]; else the cheapest.",
        ),
    ] = None,
    usd_per_hour: opt.UsdPerHourOption = None,
    tier: opt.TierOption = "best",
    device_file: Annotated[
        Path | None,
        typer.Option(
            "--device-file", metavar="FILE", help="Device profile of yours, instead of --device."
        ),
    ] = None,
    output_format: opt.FormatOption = OutputFormat.TABLE,
    out: opt.OutOption = None,
    force: opt.ForceOption = False,
    quiet: opt.QuietOption = False,
) -> None:
    """Estimate the time, energy, memory and cost of one model on one device."""
    sink = ResultWriter(output_format, out, force, quiet)
    sink.check()
    from accelsim.planning.estimate import estimate as estimate_run

    profile = _profile(device, device_file)
    result = estimate_run(
        model,
        profile,
        batch=batch,
        precision=precision,
        mode=mode,
        execution=execution,
        heap=heap,
        seq_len=seq_len,
        output_len=output_len,
        image_size=image_size,
        optimizer=optimizer,
        fused_attention=not unfused_attention,
        host=host,
        offer=offer,
        usd_per_hour=usd_per_hour,
        tier=tier,
        sparse_weights=sparse_weights,
    )

    from accelsim.report.tables import estimate_view

    document = result.to_dict()
    scalars = {key: value for key, value in document.items() if key != "operators"}
    sink.emit(
        document, lambda: estimate_view(result, profile, _quote(result.offer)), rows=[scalars]
    )


def _profile(device: str | None, device_file: Path | None) -> DeviceProfile:
    """The device to estimate: that of the file, which a name given beside it must be."""
    from accelsim import catalog
    from accelsim.errors import InvalidValueError

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


def _quote(offer: str | None) -> Quote | None:
    from accelsim.economics.price import PriceBook

    return None if offer is None else PriceBook.load().find(offer)

"""``accelsim devices``: list, show and validate device profiles."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from accelsim.cli.result_writer import ResultWriter, with_output
from accelsim.errors import AccelsimWarning, InputError, UnknownNameError
from accelsim.option import argument, option
from accelsim.plain import Document

if TYPE_CHECKING:
    from collections.abc import Callable

    from accelsim.hardware.profile import DeviceProfile

devices = typer.Typer(name="devices", help="List, show and validate devices.", no_args_is_help=True)
_CLASSES = ("cpu", "gpu", "fpga", "asic")
_LEGEND = "devices; peaks in TFLOP/s or TOP/s, dense; - not supported; bold: this machine"
_CHECK_COLUMNS = ("name", "valid", "problem")


@devices.command("list")
@with_output
def list_devices(
    output: ResultWriter,
    device_class: str | None = option(
        "Only cpu, gpu, fpga or asic.", metavar="CLASS", flags="--class"
    ),
    vendor: str | None = option("Only this vendor's.", metavar="NAME"),
) -> None:
    """List all devices, this machine's own first."""
    from accelsim.catalog import detect_local_devices, is_of_class
    from accelsim.catalog.selection import check_class
    from accelsim.report.devices import DEVICE_COLUMNS, device_row, devices_table

    wanted = check_class(device_class)
    profiles, broken = _readable_devices()
    local = detect_local_devices()
    profiles = [*local, *sorted(profiles, key=lambda p: _CLASSES.index(p.device_class))]
    vendors = {profile.vendor.lower(): profile.vendor for profile in profiles}
    if vendor is not None and vendor.lower() not in vendors:
        raise UnknownNameError("vendor", vendor, sorted(vendors.values()))
    rows = [
        device_row(profile, local=index < len(local))
        for index, profile in enumerate(profiles)
        if (wanted is None or is_of_class(profile, wanted))
        and (vendor is None or profile.vendor.lower() == vendor.lower())
    ]
    note = f"{len(rows)} {_LEGEND}"
    output.emit(rows, devices_table, columns=DEVICE_COLUMNS, note=note)
    for problem in broken:
        output.note(f"left out: {problem}")


def _readable_devices() -> tuple[list[DeviceProfile], list[str]]:
    """Profiles that validate, and what is wrong with the others."""
    from accelsim import catalog

    profiles = []
    broken = [f"{path}: {problem}" for path, problem in catalog.device_file_problems()]
    for name in catalog.device_names():
        try:
            profiles.append(catalog.device(name))
        except InputError as error:
            broken.append(str(error))
    return profiles, broken


@devices.command("show")
@with_output
def show_device(
    output: ResultWriter,
    name: str = argument("Device name, alias, slice, or the path of a profile."),
) -> None:
    """Show one device, every number with its kind and source."""
    from accelsim import catalog
    from accelsim.report.devices import device_document, device_view

    is_file = name.lower().endswith((".yaml", ".yml", ".json"))
    profile = catalog.load_device_file(name) if is_file else catalog.device(name)
    document = device_document(profile)
    output.emit(document, lambda _: device_view(profile), rows=document["numbers"])


@devices.command("validate")
@with_output
def validate_devices(
    output: ResultWriter,
    files: list[Path] | None = argument("Profiles; all known if none.", "[FILE]...", None),
) -> None:
    """Validate device profiles; exits with 2 if one is wrong, naming line and field."""
    rows = _checked(files)
    wrong = sum(not row["valid"] for row in rows)
    note = f"{len(rows) - wrong} of {len(rows)} profiles are valid"
    output.emit(
        rows, "~profile=name | valid | ~problem=problem?", columns=_CHECK_COLUMNS, note=note
    )
    if wrong:
        raise typer.Exit(2)


def _checked(files: list[Path] | None) -> list[Document]:
    """Whether each file, or each known profile, can be read; its cautions are a problem, too."""
    from accelsim import catalog

    load_profile: Callable[[str], DeviceProfile] = (
        catalog.load_device_file if files else catalog.device
    )
    unlisted = [] if files else catalog.device_file_problems()
    rows: list[Document] = []
    for name in map(str, files or catalog.device_names()):
        error = ""
        with warnings.catch_warnings(record=True) as cautions:
            warnings.simplefilter("always", AccelsimWarning)
            try:
                load_profile(name)
            except InputError as refused:
                error = str(refused)
        problem = error or "; ".join(str(caution.message) for caution in cautions) or None
        rows.append({"name": name, "valid": not error, "problem": problem})
    return rows + [{"name": path, "valid": False, "problem": problem} for path, problem in unlisted]

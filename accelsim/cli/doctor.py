"""``accelsim doctor``: what is here, and what is missing for what."""

from __future__ import annotations

import os
import platform
import re
from importlib import metadata
from typing import TYPE_CHECKING

import accelsim
from accelsim.cli.result_writer import ResultWriter, with_output
from accelsim.errors import InputError
from accelsim.plain import Document

if TYPE_CHECKING:
    from rich.console import RenderableType

#: Extra -> what it is for.
_PURPOSES = {
    "torch": "capture of PyTorch modules, calibration of this machine",
    "onnx": "ONNX files",
    "hub": "models by their id: --hub",
    "silicon": "measured GPU kernels, for refits",
    "plots": "pictures: --out FILE.png",
    "report": "pages: --report, accelsim report",
    "mcp": "tools of agents: accelsim mcp",
    "sweep": "sweeps",
    "dask": "sweeps on a cluster",
    "docs": "building the documentation",
}
_VARIABLES = (
    "ACCELSIM_DEVICE_PATH",
    "ACCELSIM_WORKLOAD_PATH",
    "ACCELSIM_PRICE_PATH",
    "XDG_CONFIG_HOME",
)


@with_output
def doctor(output: ResultWriter) -> None:
    """Show what is installed here: versions, extras, devices, data folders, and what is wrong."""
    from accelsim import catalog
    from accelsim.catalog import clusters as cluster_catalog
    from accelsim.catalog import workloads as workload_catalog
    from accelsim.files.datafile import data_root

    problems, workload_count = _problems(), None
    try:
        workload_count = len(workload_catalog.workload_names())
    except InputError as error:
        problems.append(str(error))
    facts: Document = {
        "version": accelsim.__version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "data": str(data_root()),
        "devices_count": len(catalog.device_names()),
        "workloads_count": workload_count,
        "clusters_count": len(cluster_catalog.cluster_names()),
        "here": [
            {"device": device.name, "title": device.title}
            for device in catalog.detect_local_devices()
        ],
        "calibration": _calibration(),
        "variables": {name: os.environ[name] for name in _VARIABLES if os.environ.get(name)},
        "extras": _extras(),
        "problems": problems,
    }
    output.emit(facts, _view, rows=facts["extras"])


def _extras() -> list[Document]:
    """Extras with their packages' versions; None for one that is missing."""
    needed: dict[str, list[str]] = {}
    for line in metadata.requires("accelsim") or []:
        name, _, extra = line.partition("; extra == ")
        if extra.strip("'\"") in _PURPOSES:
            package = re.split(r"[^\w.-]", name)[0]
            needed.setdefault(extra.strip("'\""), []).append(package)
    return [
        {
            "extra": extra,
            "installed": all(map(_version, packages)),
            "packages": {package: _version(package) for package in packages},
            "for": _PURPOSES[extra],
        }
        for extra, packages in needed.items()
    ]


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _calibration() -> str | None:
    """Folder of this machine's own calibration; None where it has none."""
    from accelsim.cost.fitted import calibration_folders

    folder = calibration_folders()[0]
    return str(folder) if (folder / "fitted").is_dir() else None


def _problems() -> list[str]:
    """What the user's own files and folders have wrong."""
    from accelsim import catalog
    from accelsim.economics.price import PriceBook

    problems = [f"{path}: {problem}" for path, problem in catalog.device_file_problems()]
    try:
        book = PriceBook.load()
    except InputError as error:
        return [*problems, str(error)]
    return problems + [
        f"price {offer.offer_id}: no device of the catalogue is called {offer.device}"
        for offer in book
        if book.is_own(offer) and offer.device not in {None, *catalog.device_names()}
    ]


def _view(facts: Document) -> RenderableType:
    from rich.console import Group

    from accelsim.quantity import say
    from accelsim.report.listing import Listing, pairs

    local = ", ".join(f"{device['device']} ({device['title']})" for device in facts["here"])
    counts = ", ".join(
        say(f"{{{kind}_count}} {kind}", facts) for kind in ("devices", "workloads", "clusters")
    )
    lines = [
        ("accelsim", f"{facts['version']}, Python {facts['python']}, {facts['system']}"),
        ("data", f"{facts['data']}: {counts}"),
        ("here", local or "no device recognised"),
        ("calibrated", facts["calibration"] or "no; accelsim calibrate measures this machine"),
        *facts["variables"].items(),
        ("problems", "; ".join(facts["problems"]) or "none"),
    ]
    rows = [
        {**row, "remedy": "yes" if row["installed"] else f"pip install 'accelsim[{row['extra']}]'"}
        for row in facts["extras"]
    ]
    return Group(pairs(lines), "", Listing.of("extra | installed=remedy | ~for", rows, gap=2))

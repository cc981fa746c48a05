"""Content of what a sweep rests on, so that its folder is not gone on with after an edit."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

import accelsim
from accelsim import catalog
from accelsim.catalog import clusters as cluster_catalog
from accelsim.catalog import workloads as workload_catalog
from accelsim.cost.fitted import calibration_folders
from accelsim.economics.price import PRICE_PATH_VARIABLE
from accelsim.errors import AccelsimError
from accelsim.estimation.run import device_parts, workload_parts
from accelsim.files.datafile import data_root, read_text
from accelsim.files.prices import prices_folder, updates_folder
from accelsim.plain import Document
from accelsim.result import Provenance

#: Fields that name something with content of its own, and what that is.
_ROLES = {
    "model": "model",
    "device": "device",
    "host": "device",
    "cluster": "cluster",
    "scenario": "scenario",
}
#: Class-wide parameters, stacks and engines, in ``calibration``.
_PARAMETERS = ("class/*", "stacks/*", "engines/*", "EVIDENCE.json")
#: Files of the user's own folders.
_OWN = "*.[yj]*"


def content_hashes(values: Mapping[str, Iterable[object]]) -> dict[str, str]:
    """Hash of each device (with its overlay) and model of a sweep, by its name, as results carry
    them, of each cluster and scenario, and of what all points share: prices and parameters, and
    the catalogue that a scenario chooses from. Empty for what does not exist, which becomes
    different once it does.

    Args:
        values: Values of each field.
    """
    hashes = {
        f"{role} {name}": _hash(role, str(name))
        for field, role in _ROLES.items()
        for name in sorted({str(value) for value in values.get(field, ()) if value is not None})
    }
    listed = filter(None, os.environ.get(PRICE_PATH_VARIABLE, "").split(os.pathsep))
    shared: dict[str, Iterable[Path]] = {
        "prices": [*prices_folder().glob("*"), *updates_folder().glob("*"), *map(Path, listed)],
        "parameters": _matching(data_root() / "calibration", _PARAMETERS),
    }
    if "scenario" in values:
        shared["catalogue"] = _catalogue()
    return hashes | {role: _hash_of_files(paths) for role, paths in shared.items()}


def _hash(role: str, name: str) -> str:
    try:
        parts = _parts(role, name)
    except (AccelsimError, OSError):
        return ""
    return " ".join(Provenance(accelsim.__version__, None, parts).data_hashes.values())


def _parts(role: str, name: str) -> Document:
    if role == "model":
        return workload_parts(workload_catalog.workload(name))
    if role == "device":
        return device_parts(catalog.device(name))
    if role == "cluster":
        cluster = cluster_catalog.cluster(name)
        return {role: cluster} | device_parts(catalog.device(cluster.node.device_name))
    return {role: read_text(Path(name))}


def _matching(folder: Path, patterns: Iterable[str]) -> Iterator[Path]:
    return (path for pattern in patterns for path in folder.glob(pattern))


def _catalogue() -> Iterator[Path]:
    """Files of devices, their overlays and models, the user's own among them."""
    yield from _matching(data_root(), ("device_profiles/**/*.yaml", "workloads/**/*.yaml"))
    overlays = (folder / "fitted" for folder in calibration_folders())
    listed = os.environ.get(workload_catalog.SEARCH_PATH_VARIABLE, "").split(os.pathsep)
    for folder in (*catalog.device_search_path(), *overlays, *map(Path, filter(None, listed))):
        yield from folder.glob(_OWN)


def _hash_of_files(paths: Iterable[Path]) -> str:
    """Of their names and contents in whatever order, without those that cannot be read."""
    digests = set()
    for path in paths:
        with suppress(OSError):
            digests.add(blake2b(path.name.encode() + b"\0" + path.read_bytes()).digest())
    return blake2b(b"".join(sorted(digests)), digest_size=8).hexdigest()

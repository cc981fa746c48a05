"""Content of what a sweep runs, so that its folder is not gone on with after that was edited."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import accelsim
from accelsim import catalog
from accelsim.catalog import clusters as cluster_catalog
from accelsim.catalog import workloads as workload_catalog
from accelsim.errors import AccelsimError
from accelsim.estimation.run import device_parts, workload_parts
from accelsim.files.datafile import read_text
from accelsim.result import Provenance

#: Fields that name something with content of its own, and what that is.
_ROLES = {
    "model": "model",
    "device": "device",
    "host": "device",
    "cluster": "cluster",
    "scenario": "scenario",
}


def content_hashes(values: Mapping[str, Iterable[Any]]) -> dict[str, str]:
    """Hash of each device (with its overlay) and model of a sweep, by its name, as results carry
    them, and of each cluster and scenario; empty for what does not exist, which becomes different
    once it does.

    Args:
        values: Values of each field.
    """
    return {
        f"{role} {name}": _hash(role, str(name))
        for field, role in _ROLES.items()
        for name in sorted({str(value) for value in values.get(field, ()) if value is not None})
    }


def _hash(role: str, name: str) -> str:
    try:
        if role == "model":
            parts = workload_parts(workload_catalog.workload(name))
        elif role == "device":
            parts = device_parts(catalog.device(name))
        elif role == "cluster":
            parts = {role: cluster_catalog.cluster(name)}
        else:
            parts = {role: read_text(Path(name))}
    except (AccelsimError, OSError):
        return ""
    return " ".join(Provenance(accelsim.__version__, None, parts).data_hashes.values())

"""Content of what a sweep runs, so that its folder is not gone on with after that was edited."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import accelsim
from accelsim import catalog, workload_catalog
from accelsim.errors import AccelsimError
from accelsim.planning.run import device_parts, workload_parts
from accelsim.result import Provenance

__all__ = ["content_hashes"]


def content_hashes(points: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Hash of each device (with its overlay) and each model of a sweep, by its name, as results
    carry them; empty for what does not exist, which becomes different once it does.

    Args:
        points: Fields of the points.
    """
    names = {
        (role, str(point[field]))
        for point in points
        for role, field in (("model", "model"), ("device", "device"), ("device", "host"))
        if point.get(field) is not None
    }
    return {f"{role} {name}": _hash(role, name) for role, name in sorted(names)}


def _hash(role: str, name: str) -> str:
    try:
        if role == "model":
            parts = workload_parts(workload_catalog.workload(name))
        else:
            parts = device_parts(catalog.device(name))
    except AccelsimError:
        return ""
    return " ".join(Provenance(accelsim.__version__, None, parts).data_hashes.values())

"""Profiles, clusters and workloads by the names that measured tables give them.

`calibration/published/table_names.yaml` says what the catalogue calls them; names that tables share
with the catalogue need no line there, nor do those that differ in capitals and signs alone, as
`LLAMA3_70B` does from `llama-3-70b`. MI250 rows are of one of the card's two dies: frameworks show
each as a device of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache, lru_cache

import numpy as np

from accelsim import catalog
from accelsim.catalog import clusters as cluster_catalog
from accelsim.catalog import workloads as workload_catalog
from accelsim.errors import UnknownNameError
from accelsim.hardware.profile import DeviceProfile, GpuProfile
from accelsim.scoreboard.data_folder import DataFolder, DataProblem, Table, published
from accelsim.workloads.model import Workload

#: Words of clusters of one device, the likeliest to have been measured first: estimate.
_CLUSTERS = ("superpod", "pod", "infiniband", "nvl72", "ultracluster")


def _key(name: str) -> str:
    return " ".join(name.lower().split())


def _letters(name: str) -> str:
    """Letters and figures of a name alone, without what stands in brackets."""
    return re.sub(r"\(.*?\)|[^a-z0-9]", "", name.lower())


def device_names() -> Mapping[str, str]:
    """Catalogue names by lower-case names of tables."""
    return published("table_names")["devices"]  # type: ignore[no-any-return]


def model_names() -> Mapping[str, str]:
    """Workloads by lower-case names of tables."""
    return published("table_names")["models"]  # type: ignore[no-any-return]


@lru_cache(maxsize=512)
def device_of(name: str) -> DeviceProfile:
    """Profile of a device as a table names it.

    Raises:
        UnknownNameError: If neither the alias table nor the catalogue has it.
    """
    key = _key(name)
    try:
        return catalog.device(device_names().get(key, key))
    except UnknownNameError:
        known_names = sorted({*device_names(), *catalog.device_names()})
        raise UnknownNameError(
            "device",
            name,
            known_names,
            "Add a device profile, or name the device as the catalogue does.",
        ) from None


def note_unknown_devices(
    folder: DataFolder,
    table: Table,
    column: str = "device",
    find: Callable[[str], DeviceProfile] = device_of,
) -> None:
    """Record names that have no profile and are not known to lack one, with the first row that has
    each.

    Args:
        folder: Collects the problems.
        table: Rows that are asked.
        column: Column of the device names.
        find: Finds the profile of a name: `device_of`, or `gpu_of` where only GPUs will do.
    """
    names, first = np.unique(table[column], return_index=True)
    for name, row in zip(names.tolist(), first.tolist(), strict=True):
        if _key(name) in published("table_names")["no_profile"]:
            continue
        try:
            find(name)
        except UnknownNameError as error:
            position = (table.file, int(table.line[row]), column)
            folder.note(DataProblem(*position, "unknown device", str(error)))


def device_refusal(error: UnknownNameError) -> str:
    """Why rows of a device are refused, without the near matches."""
    return (
        f"unknown device {error.name}"
        if error.what == "device"
        else f"{error.name} is no {error.what}"
    )


def gpu_of(name: str) -> GpuProfile:
    """Profile of a GPU as a table names it.

    Raises:
        UnknownNameError: If there is no GPU of that name.
    """
    profile = device_of(name)
    if not isinstance(profile, GpuProfile):
        raise UnknownNameError(
            "GPU", name, [], f"{profile.name} is of class {profile.device_class}."
        )
    return profile


@lru_cache(maxsize=512)
def workload_of(name: str) -> Workload:
    """Workload of a model as a table names it: the one that its layers are written for.

    Raises:
        UnknownNameError: If neither the alias table nor the catalogue has it.
    """
    key = _key(name)
    catalogue_name = model_names().get(key) or _workload_letters().get(_letters(name), key)
    return workload_catalog.workload(workload_catalog.workload(catalogue_name).architecture)


@cache
def _workload_letters() -> Mapping[str, str]:
    names = (*workload_catalog.workload_aliases(), *workload_catalog.workload_names())
    return {_letters(name): name for name in names}


@lru_cache(maxsize=64)
def cluster_of(chip: str) -> str:
    """The catalogue's cluster of a chip as a table names it, such as `DGX-B200` or `B200`.

    Of several the largest kind that its maker sells counts; see `_CLUSTERS`. A name without a
    figure, such as `TPU`, says no chip.

    Raises:
        UnknownNameError: If there is none.
    """
    letters = _letters(chip.partition("-")[2] if chip.upper().startswith("DGX-") else chip)
    names = []
    for name in cluster_catalog.cluster_names() if re.search(r"\d", letters) else ():
        board = _letters(cluster_catalog.cluster(name).device_name)
        if board.startswith(letters) or board.removeprefix("tpu").startswith(letters):
            preference = (index for index, word in enumerate(_CLUSTERS) if word in name)
            names.append((next(preference, len(_CLUSTERS)), name))
    if not names:
        raise UnknownNameError("cluster of", chip, cluster_catalog.cluster_names())
    return min(names)[1]

"""Cloud instances as devices: the name of an instance means its board, its count and its price.

The names are those of the price files (`accelsim.files.prices.public_price_files`): an instance
whose price is known is known, and no other.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

from accelsim.errors import InvalidValueError
from accelsim.files.csvfile import csv_rows
from accelsim.files.datafile import name_key
from accelsim.files.prices import public_price_files
from accelsim.hardware.profile import CpuProfile, DeviceProfile, Identity, Instance

_SHOWN_DIGITS = 9


class Sold(NamedTuple):
    """What an instance has, as its price list says.

    Attributes:
        instance: Its name as the provider writes it.
        device: Catalogue name of its accelerator or CPU; empty where it has none.
        reason: Why it has none.
        accelerators: Accelerators, maybe a part of one; 0 of a CPU.
        cores: Physical cores of a CPU instance; 0 where they are unknown.
    """

    instance: str
    device: str
    reason: str
    accelerators: float
    cores: float


def sold_as(name: str) -> Sold | None:
    """What is sold under an instance's name, in any case; None where no price list has it."""
    return _sold(public_price_files()).get(name_key(name))


def instance_names() -> tuple[str, ...]:
    """Names of all instances of the price lists."""
    return tuple(sold.instance for sold in _sold(public_price_files()).values())


def instance_device(sold: Sold, board: DeviceProfile) -> DeviceProfile:
    """One device of an instance: a board, or the share of a board or CPU that the instance has.

    Args:
        sold: What the instance has.
        board: The profile of its device.
    """
    return _bought(sold, board.name, Identity(board))


@lru_cache(maxsize=128)
def _bought(sold: Sold, _name: str, identity: Identity[DeviceProfile]) -> DeviceProfile:
    board = identity.value
    share, count = _share(sold, board)
    profile = board
    if share:
        from accelsim.hardware.slice import parse_slice_syntax, slice_device

        spec = parse_slice_syntax(board.name, share, board)
        profile = slice_device(board, spec, f"{board.name}@{share}")
    bought = Instance(name=sold.instance, device_count=count)
    return profile.model_copy(update={"instance": bought})


def _share(sold: Sold, board: DeviceProfile) -> tuple[str, int]:
    """The share of a board that one device of the instance is, as a slice is written (empty for
    all of it), and how many there are.
    """
    if isinstance(board, CpuProfile):
        board_cores = board.core_count.value
        if not sold.cores:
            allowed = "an instance whose cores are known"
            raise InvalidValueError("device", sold.instance, allowed, f"Name {board.name}@Ncore.")
        sockets = max(1, -(-int(sold.cores) // board_cores))
        socket_cores = int(sold.cores) // sockets
        return ("" if socket_cores >= board_cores else f"{socket_cores}core"), sockets
    if 0 < sold.accelerators < 1:
        return f"fraction={sold.accelerators:.{_SHOWN_DIGITS}f}", 1
    return "", max(1, int(sold.accelerators))


@cache
def _sold(files: tuple[Path, ...]) -> Mapping[str, Sold]:
    instances: dict[str, Sold] = {}
    for path in files:
        for _, row in csv_rows(path):
            listed = instances.get(key := name_key(row["instance"]))
            if listed is None or not listed.device:
                instances[key] = _of_row(row)
    return instances


def _of_row(row: Mapping[str, str]) -> Sold:
    count, vcpus = (float(row[name] or 0) for name in ("device_count", "vcpu_count"))
    threads = float(row["vcpus_per_core"] or 0)
    cores = vcpus / threads if threads and not count else 0.0
    return Sold(row["instance"], row["device"], row.get("device_reason", ""), count, cores)

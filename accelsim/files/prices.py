"""Where public prices lie: files that ship, and files that updates write, the newer first."""

from __future__ import annotations

from pathlib import Path

from accelsim.files.datafile import data_root
from accelsim.files.plainfile import user_folder


def prices_folder() -> Path:
    """Folder of the project's price files, in a checkout or an installed package."""
    return data_root() / "calibration" / "prices"


def updates_folder() -> Path:
    """Folder of the price files that ``accelsim offers update`` writes."""
    return user_folder() / "prices"


def public_price_files() -> tuple[Path, ...]:
    """Files of public offers; an offer of an earlier one replaces that of a later one."""
    return (*sorted(updates_folder().glob("*.csv")), prices_folder() / "offers.csv")

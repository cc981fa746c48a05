"""``python -m tools.refit --data DIR [--class gpu] [--device D] [--spreads|--relatives|--dpu]
[--out DIR]``.

Without a choice, the class-wide set, the sets with one chip left out, and the overlay of every
device that has one are fitted. With ``--spreads`` all values stay and the spreads behind the
intervals are made anew; with ``--relatives`` the surfaces of all overlays are gathered into the
file that boards without measurements read; with ``--dpu`` the rates of DPUs are fitted. Fits start
from fixed priors (`tools.refit.priors`): the same tables give the same files, whatever was there
before. A fit that does not converge keeps the previous file and says so; the exit status is then 1.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from accelsim.calibration.fit.rows import Cell, gpu_cells
from accelsim.cost.gpu.measured_boards import FILE, overlay_boards, write_measured_boards
from accelsim.datafile import data_root
from accelsim.errors import AccelsimError
from accelsim.validation.cnn_gpus import MEASUREMENTS_SCHEMA
from accelsim.validation.tables import data_folder
from tools.refit.dpu import refit_dpu
from tools.refit.refit import (
    ClassSample,
    refit_class,
    refit_device,
    refit_left_out,
    respread_class,
    respread_device,
)
from tools.refit.stacks import refit_stacks

#: Chips whose rows validation predicts at tier `spec`, each left out of a set of its own.
CHIPS = (
    "a100",
    "v100",
    "p100",
    "t4",
    "p4",
    "mi100",
    "gtx-1080-ti",
    "titan-x-pascal",
    "gtx-titan-x-maxwell",
    "m40",
)
DEVICES = (
    "a100-pcie-40gb",
    "v100-pcie-32gb",
    "p100-pcie-16gb",
    "t4",
    "p4",
    "mi100",
    "v100-sxm2-16gb",
)


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 1 where a fit was refused or did not converge."""
    parser = argparse.ArgumentParser(prog="tools.refit", description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of measured tables")
    parser.add_argument(
        "--class", dest="device_class", choices=["gpu"], help="fit the class-wide sets alone"
    )
    parser.add_argument(
        "--device",
        action="append",
        default=[],
        help="fit this device's overlay alone; may be repeated",
    )
    parser.add_argument(
        "--out",
        type=Path,
        help="folder for class/ and fitted/; the shipped calibration folder if left out",
    )
    parser.add_argument(
        "--spreads", action="store_true", help="keep all values and make the spreads anew"
    )
    parser.add_argument(
        "--relatives",
        action="store_true",
        help="gather the overlays' surfaces into one compact file",
    )
    parser.add_argument("--dpu", action="store_true", help="fit the rates of DPUs alone")
    options = parser.parse_args(arguments)
    out = options.out or data_root() / "calibration"
    if options.data is None and not options.relatives:
        parser.error("--data DIR is needed for all but --relatives")
    try:
        if options.relatives:
            _gather(out / "fitted")
            return 0
        if options.dpu:
            refit_dpu(data_folder(options.data), out / "class", _say)
            return 0
        return _refit(options, out)
    except AccelsimError as error:
        _say(f"error: {error}")
        return 1


def _refit(options: argparse.Namespace, out: Path) -> int:
    everything = options.device_class is None and not options.device
    cells = gpu_cells(data_folder(options.data), _say)
    if options.spreads:
        _respread(options, cells, out, everything=everything)
        return 0
    kept: list[str] = []
    sample = ClassSample(cells, out / "class")
    prior = sample.before()
    if everything or options.device_class:
        prior, kept = refit_class(sample, _say)
        for chip in CHIPS:
            kept += refit_left_out(chip, sample, _say)
        folder = data_folder(options.data)
        if folder.has(MEASUREMENTS_SCHEMA):
            refit_stacks(folder, out / "class")
    for device in options.device or (DEVICES if everything else ()):
        kept += refit_device(device, cells, out / "fitted", _say, prior)
    for line in kept:
        _say(f"kept as it was: {line}")
    return 1 if kept else 0


def _gather(folder: Path) -> None:
    """Surfaces of a folder's overlays in the file that other boards read them from."""
    boards = overlay_boards(folder)
    write_measured_boards(boards, folder / FILE)
    _say(f"{len(boards)} boards in {folder / FILE}")


def _respread(
    options: argparse.Namespace, cells: Sequence[Cell], out: Path, *, everything: bool
) -> None:
    if everything or options.device_class:
        respread_class(ClassSample(cells, out / "class", keep_values=True), CHIPS, _say)
    for device in options.device or (DEVICES if everything else ()):
        respread_device(device, cells, out / "fitted", _say)


if __name__ == "__main__":
    sys.exit(main())

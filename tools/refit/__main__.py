"""``python -m tools.refit``: refit the GPU and DPU data that ship, from reference tables.

With ``--data DIR`` alone, the class-wide set, the sets with one chip left out, and the overlay of
every device that has one are fitted. With ``--spreads`` all values stay and the spreads behind the
intervals are made anew; with ``--dpu`` the rates of DPUs are fitted, with
``--fabrics`` protocols of links are, and printed; with ``--whole-models`` ratios and spreads of
software stacks are fitted to published speeds of whole networks. ``--score-fits`` writes no file
but prints how far fits to the folder's operators are from the shapes kept back and from whole
models, also of GPUs that ship without an overlay. ``--import
aiconfigurator:SYSTEM[:BACKEND[:VERSION]]`` fits the measured surfaces of a system's device to the
kernels of the package aiconfigurator-core; ``aiconfigurator:all`` those of every known one.
``--relatives`` lists the boards with measured surfaces in the file that boards without measurements
read. Fits start from fixed priors (`tools.refit.priors`): the same tables give the same files,
whatever was there before. A fit that does not converge keeps the previous file and says so; the
exit status is then 1.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from accelsim.calibration.fit.cells import OperatorRows
from accelsim.cost.gpu.measured_boards import FILE, overlay_boards
from accelsim.errors import AccelsimError
from accelsim.files.datafile import data_root, read_mapping
from accelsim.scoreboard import markdown, scoreboard_dict, validate
from accelsim.scoreboard.cnn_gpus import MEASUREMENTS_SCHEMA
from accelsim.scoreboard.data_folder import data_folder
from tools.refit.aiconfigurator_fit import import_kernels, parsed_requests
from tools.refit.dpu import refit_dpu
from tools.refit.fabrics import refit_fabrics
from tools.refit.files import write_measured_boards
from tools.refit.folder_fit import FolderFits, gpu_cells
from tools.refit.refit import (
    ClassSample,
    refit_class,
    refit_device,
    refit_left_out,
    respread_class,
    respread_device,
)
from tools.refit.stacks import refit_stacks
from tools.refit.vidur import vidur_cells
from tools.refit.whole_models import refit_whole_models


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


def _boards(key: str) -> list[str]:
    """A list of class data on GPU boards."""
    path = data_root() / "calibration" / "class" / "gpu-boards.yaml"
    return [str(name) for name in read_mapping(path)[key]]


_FLAGS = {
    "--spreads": "keep all values and make the spreads anew",
    "--relatives": "list the boards with measured surfaces",
    "--dpu": "fit the rates of DPUs alone",
    "--whole-models": "fit ratios and spreads of software stacks alone",
    "--score-fits": "print the scores of fits to the folder alone",
    "--fabrics": "print protocols of links, fitted",
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.refit",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder of measured tables")
    parser.add_argument(
        "--class", dest="device_class", choices=["gpu"], help="fit the class-wide sets alone"
    )
    parser.add_argument(
        "--device",
        action="append",
        default=[],
        metavar="NAME",
        help="fit this device's overlay alone; may be repeated",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="folder for class/ and fitted/; the shipped calibration folder if left out",
    )
    parser.add_argument(
        "--import",
        dest="imported",
        metavar="SOURCE",
        help="fit measured surfaces: aiconfigurator:SYSTEM[:BACKEND[:VERSION]], aiconfigurator:all",
    )
    for flag, words in _FLAGS.items():
        parser.add_argument(flag, action="store_true", help=words)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 1 where a fit was refused or did not converge."""
    parser = _parser()
    options = parser.parse_args(arguments)
    out = options.out or data_root() / "calibration"
    if options.data is None and not (options.relatives or options.imported):
        parser.error("--data DIR is needed for all but --import and --relatives")
    try:
        return _run(options, out)
    except AccelsimError as error:
        _say(f"error: {error}")
        return 1


def _run(options: argparse.Namespace, out: Path) -> int:
    if options.imported:
        for request in parsed_requests(options.imported):
            _say(f"wrote {import_kernels(request, out / 'fitted', _say)}")
    if options.imported or options.relatives:
        _list_boards(out / "fitted")
        return 0
    if options.dpu:
        refit_dpu(data_folder(options.data), out / "class", _say)
        return 0
    if options.fabrics:
        for name, values in refit_fabrics(data_folder(options.data)).items():
            _say(f"{name}: {values}")
        return 0
    if options.score_fits:
        names = ("gpu-operators", "gpu-models")
        board = validate(names, options.data, "fitted", fits_of=FolderFits)
        sys.stdout.write(markdown(scoreboard_dict(board)))
        return 0
    if options.whole_models:
        refit_whole_models(data_folder(options.data), out / "stacks", _say)
        return 0
    return _refit(options, out)


def _refit(options: argparse.Namespace, out: Path) -> int:
    everything = options.device_class is None and not options.device
    _say("reading operator tables")
    folder = data_folder(options.data)
    cells = [*gpu_cells(folder), *vidur_cells(folder)]
    devices = options.device or (_boards("fitted_boards") if everything else [])
    if options.spreads:
        _respread(options, cells, out, devices)
        return 0
    kept: list[str] = []
    sample = ClassSample(cells, out / "class")
    prior = sample.before()
    if everything or options.device_class:
        prior, kept = refit_class(sample, _say)
        for chip in _boards("left_out_chips"):
            kept += refit_left_out(chip, sample, _say)
        if folder.has(MEASUREMENTS_SCHEMA):
            refit_stacks(folder, out / "class")
    for device in devices:
        kept += refit_device(device, cells, out / "fitted", _say, prior)
    for line in kept:
        _say(f"kept as it was: {line}")
    return 1 if kept else 0


def _list_boards(folder: Path) -> None:
    """Boards of a folder's measured overlays in the file that other boards find them in."""
    boards = overlay_boards(folder)
    write_measured_boards(boards, folder / FILE)
    _say(f"{len(boards)} boards in {folder / FILE}")


def _respread(
    options: argparse.Namespace, cells: Sequence[OperatorRows], out: Path, devices: Sequence[str]
) -> None:
    if options.device_class or not options.device:
        sample = ClassSample(cells, out / "class", keep_values=True)
        respread_class(sample, _boards("left_out_chips"), _say)
    for device in devices:
        respread_device(device, cells, out / "fitted", _say)


if __name__ == "__main__":
    sys.exit(main())

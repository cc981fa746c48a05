"""Ratios of older software stacks, from networks timed on several cards; see
`tools.scoreboard.left_out`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from accelsim.calibration.overlay import number
from accelsim.cost.gpu import GpuParameters
from accelsim.cost.gpu.gpu_parameters import read_parameters
from accelsim.hardware.profile import DeviceProfile
from accelsim.scoreboard.cnn_gpus import load
from accelsim.scoreboard.data_folder import DataFolder
from accelsim.scoreboard.parameters import parameters as handed_in
from accelsim.scoreboard.suite import MeasuredBatch
from accelsim.scoreboard.tiers import chips_of
from accelsim.workloads.graph import FloatArray
from tools.refit.files import class_file, left_out_folder, left_out_name

_SOURCE = (
    "Geometric mean of measured over predicted times of the networks of J. Johnson, cnn-benchmarks"
    " (2016-2017)"
)


def refit_stacks(folder: DataFolder, out: Path) -> Path:
    """Fit and write ``older-stacks.yaml``: the ratio of each stack, and that from all other cards.

    Args:
        folder: Tables of the suite `cnn-gpus`.
        out: Folder of class-wide files, whose sets predict; the shipped ones where it has none.
    """
    ratios: dict[str, dict[str, float]] = {}
    for batch in load(folder):
        if batch.predict is None or batch.profile is None:
            continue
        residual = _log_ratio(batch, _unseen(batch.profile, out))
        for stack in sorted({_stack(label) for label in batch.label.tolist()} - {""}):
            rows = np.array([_stack(label) == stack for label in batch.label.tolist()])
            known = np.log(handed_in().older_stack_ratio(stack, batch.profile.name))
            ratios.setdefault(stack, {})[batch.profile.name] = float(residual[rows].mean() + known)
    lines = [
        "# How much longer networks take on software of another time than the model says: over all",
        "# cards, and for each card from the others.",
        f'source: "{_SOURCE}"',
        "stacks:",
    ]
    for stack, cards in sorted(ratios.items()):
        lines += [f"  {stack}:", f"    value: {_mean(list(cards.values()))}", "    without:"]
        lines += [
            f"      {card}: {_mean([v for c, v in cards.items() if c != card])}"
            for card in sorted(cards)
        ]
    path = left_out_folder(out) / "older-stacks.yaml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _unseen(device: DeviceProfile, folder: Path) -> GpuParameters:
    """The set fitted without a card, else the class-wide one; no such card has relatives."""
    names = [*map(left_out_name, chips_of(device)), "gpu"]
    return read_parameters(
        next(path for name in names if (path := class_file(folder, name)) is not None)
    )


def _log_ratio(batch: MeasuredBatch, parameters: GpuParameters) -> FloatArray:
    if batch.predict is None:
        return np.zeros(0)
    ratio: FloatArray = np.log(batch.measured_s / batch.predict(parameters).time_s)
    return ratio


def _stack(label: str) -> str:
    """Stack of a row of the suite: its library's major and minor version."""
    _, _, library = label.partition("cuDNN ")
    return "torch7 cudnn " + ".".join(library.split(".")[:2]) if library else ""


def _mean(logs: list[float]) -> str:
    return number(float(np.exp(np.mean(logs)))) if logs else "1.0"

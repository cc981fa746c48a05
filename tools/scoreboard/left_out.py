"""Parameters that the rows they are scored on had no part in.

Fits leave a board, a chip, or a served model out and are made anew (`tools.refit`). What they give
lies in the folder ``data`` beside this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from accelsim.catalog.stacks import Achieved, Spread, Stack
from accelsim.confidence.quantiles import small_sample_ratio
from accelsim.cost.gpu import GpuParameters
from accelsim.cost.gpu.gpu_parameters import read_parameters
from accelsim.estimation.evidence import shipped_evidence
from accelsim.files.datafile import read_json, read_mapping
from accelsim.plain import Document, Values
from accelsim.scoreboard.accuracy_file import spreads_text
from accelsim.scoreboard.evidence import log_sigma, residuals
from accelsim.scoreboard.parameters import Parameters
from accelsim.scoreboard.scores import Scoreboard
from accelsim.workloads.graph import FloatArray

DATA = Path(__file__).parent / "data"
_SPREADS_NAME = "spreads.json"
_MAX_BYTES = 1_000_000


def others_log_sigma(errors: Sequence[FloatArray]) -> float:
    """Spread of ln(measured / predicted) of one more network, by those of some others, each of
    which weighs the same; see `accelsim.confidence.quantiles.small_sample_ratio`.

    Args:
        errors: ln(predicted / measured) of each network's rows; two networks at least.
    """
    square = np.mean([np.mean(own**2) for own in errors])
    return float(np.sqrt(square)) * small_sample_ratio(len(errors))


class LeftOut(Parameters):
    """Sets, ratios and spreads of the folder."""

    def class_set(self, chip: str) -> GpuParameters | None:
        """GPU parameters fitted without a chip's rows; None where there are none."""
        return _class_set(chip)

    def stack(self, stack: Stack, board: str) -> Stack:
        """A stack with the ratios and spreads of other boards."""
        entry = _document("stacks.yaml").get(stack.name, {}).get(board)
        if entry is None:
            return stack
        update: Document = {
            name: tuple(kind.model_validate(values) for values in entry.get(name, ()))
            for name, kind in (("achieved", Achieved), ("spreads", Spread))
        }
        if "core_bytes" in entry and stack.own_kernels is not None:
            core_bytes = {"core_bytes": entry["core_bytes"]}
            update["own_kernels"] = stack.own_kernels.model_copy(update=core_bytes)
        return stack.model_copy(update=update)

    def spreads(self, origin: str) -> Values:
        """The spreads that ship, as they are without the rows of one origin; groups of one are left
        out.
        """
        spreads = {}
        for place, entry in shipped_evidence()["spreads"].items():
            others = _document(_SPREADS_NAME).get(place, {})
            if entry["origins"] > 1:
                sigma = others.get(origin, entry["log_sigma"])
                origins = entry["origins"] - (origin in others)
                spreads[place] = {**entry, "log_sigma": sigma, "origins": origins}
        return spreads

    def older_stack_ratio(self, stack: str, card: str) -> float:
        """The ratio of "torch7 cudnn 5.1", for one; 1 where nothing is known."""
        entry = _document("older-stacks.yaml").get("stacks", {}).get(stack, {})
        return float(entry.get("without", {}).get(card, entry.get("value", 1.0)))

    def publish(self, board: Scoreboard) -> None:
        """Write the spreads without each origin."""
        text = spreads_text(spreads_left_out(board)) + "\n"
        (DATA / _SPREADS_NAME).write_text(text, encoding="utf-8")


def spreads_left_out(board: Scoreboard) -> Document:
    """The spreads of `accelsim.scoreboard.evidence_dict` without the rows of each origin, by place
    and origin.
    """
    return {
        place: {name: log_sigma(residual[origin != name]) for name in np.unique(origin).tolist()}
        for place, residual, origin in residuals(board)
        if len(np.unique(origin)) > 1
    }


@lru_cache(maxsize=128)
def _class_set(chip: str) -> GpuParameters | None:
    path = DATA / f"gpu-without-{chip}.yaml"
    return read_parameters(path) if path.is_file() else None


@lru_cache(maxsize=8)
def _document(name: str) -> dict[str, Any]:
    path = DATA / name
    if not path.is_file():  # a refit makes it anew
        return {}
    read = read_json if path.suffix == ".json" else read_mapping
    return read(path, max_bytes=_MAX_BYTES)

"""Suite `fpga-dataflow`: published streaming designs of FINN and hls4ml.

A design whose folding is published is rebuilt from it (group "published folding"): its frame rate
follows from the node cycles alone. One whose folding is not published is searched for: the folding
search is asked for the published rate and must find a design that fits the board; what is scored is
how close the rate of the smallest such design comes (group "folding search"). Designs whose layers
are not published are refused.

CNV-max and CNV-fix (group "scaled folding") take the folding that BNN-PYNQ publishes "as described
in FINN paper", SIMD x PE of each layer times four and two, and window generators that hold whole
maps, as the first library's buffer does. Both were inferred from the two rates, so that these rows
are explained rather than predicted; the paper's latencies and lookup tables, which took no part,
agree (0.3 and 2.3 %; 0.3 and 19 %).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from accelsim import catalog
from accelsim.cost.fpga.dataflow import DataflowDesign, StreamingNode, fold_network
from accelsim.cost.fpga.fpga_parameters import fpga_parameters
from accelsim.errors import AccelsimError
from accelsim.files.datafile import data_root
from accelsim.hardware.profile import FpgaProfile
from accelsim.hardware.sourced import Sourced
from accelsim.plain import Values
from accelsim.scoreboard.data_folder import DataFolder, published, schema
from accelsim.scoreboard.suite import MeasuredBatch, Prediction, refused_batch, register_suite
from tools.scoreboard.folding_file import folded_design, read_folding

SCHEMA = schema("fpga/dataflow_designs.csv")
#: ln standard deviation of the rate of a known folding: what designs lose to filling their buffers,
#: and rounding.
_SIGMA_KNOWN = 0.05
#: Of a folding searched for: factors that divide a layer's matrix give rates about 1.5 apart,
#: ln(1.5) / sqrt(12).
_SIGMA_SEARCHED = 0.12
_PYNQ_HZ = 100e6


def dense_nodes(sizes: Sequence[int], bits: int) -> list[StreamingNode]:
    """Fully connected layers between consecutive sizes."""
    pairs = pairwise(sizes)
    return [StreamingNode(f"fc{i}", mw, mh, 1.0, bits, bits) for i, (mw, mh) in enumerate(pairs)]


def network_nodes(name: str, *, holds_maps: bool = False) -> list[StreamingNode]:
    """Layers of a network of ``calibration/published/fpga_designs.yaml``.

    Args:
        name: There.
        holds_maps: Whether window generators take in a whole map before they give windows.
    """
    entry = published("fpga_designs")["networks"][name]
    bits = entry["bits"]
    nodes = []
    for index, (c_in, c_out, side) in enumerate(entry.get("convolutions", ())):
        start = 1.0 if holds_maps else min(1.0, 3 / side)
        load_cycles = float((side + 2) ** 2) if holds_maps else 0.0
        sizes = (9 * c_in, c_out, float(side**2), bits, bits, start, load_cycles)
        nodes.append(StreamingNode(f"conv{index}", *sizes))
    for index, (width, outputs, length) in enumerate(entry.get("signals", ())):
        signal = (width, outputs, float(length), bits, bits, 3 / length)
        nodes.append(StreamingNode(f"conv{index}", *signal))
    return nodes + dense_nodes(entry["dense"], bits)


def _board(name: str, clock_mhz: float) -> FpgaProfile | None:
    """The board at a clock, with the counts of its own part; None where it is not known."""
    known = published("fpga_designs")
    if name not in known["boards"]:
        return None
    device = catalog.device(known["boards"][name])
    if not isinstance(device, FpgaProfile):
        return None
    source = "AMD DS190, XC7Z045"
    parts = known["parts"].get(name, {}).items()
    counts = {key: Sourced(value=value, source=source) for key, value in parts}
    clock = _PYNQ_HZ if np.isnan(clock_mhz) else clock_mhz * 1e6
    counts["fabric_clock_hz"] = Sourced(value=clock, source="the table's clock")
    return device.model_copy(update=counts)


@register_suite("fpga-dataflow", "streaming designs of FINN and hls4ml", (SCHEMA,), "model")
def load(folder: DataFolder) -> list[MeasuredBatch]:
    """One batch per design with a published rate."""
    return list(map(_batch, folder.records(SCHEMA)))


def _batch(record: Values) -> MeasuredBatch:
    name, place, fps = record["design"], record["board"], record["fps"]
    known = published("fpga_designs")["designs"].get(name)
    board = _board(place, record["mhz"])
    label = np.array([name])
    group = np.array([_group(known or {})])
    refusal = "layers not published" if known is None else "board unknown" if board is None else ""
    if not (refusal or fps > 0):
        refusal = "no rate published"
    measured = np.array([1.0 / fps if fps > 0 else 1.0])
    if refusal or known is None or board is None:
        return refused_batch(place, group, label, measured, refusal)
    nodes = network_nodes(known["network"], holds_maps=known.get("holds_maps", False))
    predict = _predictor(nodes, known.get("folding", ""), board, fps)
    return MeasuredBatch(place, board, group, label, measured, np.full(1, np.nan), predict)


def _group(design: Mapping[str, Any]) -> str:
    """How a design's folding is known."""
    if "folding" not in design:
        return "folding search"
    return "scaled folding" if design.get("scaled") else "published folding"


def _predictor(
    nodes: list[StreamingNode], folding: str, board: FpgaProfile, fps: float
) -> Callable[[Any | None], Prediction]:
    def predict(_parameters: Any | None) -> Prediction:
        if folding:
            path = data_root() / "calibration" / "published" / "finn_folding" / f"{folding}.json"
            design = folded_design(nodes, read_folding(path), board, fpga_parameters())
        else:
            design = _smallest(nodes, board, fps)
        sigma = _SIGMA_KNOWN if folding else _SIGMA_SEARCHED
        return Prediction(np.array([1.0 / design.fps]), np.array([sigma]))

    return predict


def _smallest(nodes: list[StreamingNode], board: FpgaProfile, fps: float) -> DataflowDesign:
    """The smallest design at the published rate; a rate printed rounded up may be a little above a
    reachable one.
    """
    try:
        return fold_network(nodes, board, fpga_parameters(), target_fps=fps)
    except AccelsimError:
        return fold_network(nodes, board, fpga_parameters(), target_fps=0.95 * fps)

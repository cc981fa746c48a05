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

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from accelsim import catalog
from accelsim.cost.fpga.dataflow import StreamingNode, fold_network
from accelsim.cost.fpga.folding_file import folded_design, read_folding
from accelsim.cost.fpga.fpga_parameters import fpga_parameters
from accelsim.datafile import data_root
from accelsim.errors import AccelsimError
from accelsim.hardware.profile import FpgaProfile
from accelsim.hardware.sourced import Sourced
from accelsim.validation.data_folder import DataFolder, Schema, Table, number, text
from accelsim.validation.suite import Batch, Prediction, refused_batch, register_suite

__all__ = ["DESIGNS", "SCHEMA", "cnv_nodes", "mlp_nodes", "radioml_nodes"]

SCHEMA = Schema(
    "fpga/dataflow_designs.csv",
    (*text("design", "flow", "board"), *number("mhz", "fps", "latency_us", optional=True)),
)
#: ln standard deviation of the rate of a known folding: what designs lose to filling their buffers,
#: and rounding.
_SIGMA_KNOWN = 0.05
#: Of a folding searched for: factors that divide a layer's matrix give rates about 1.5 apart,
#: ln(1.5) / sqrt(12).
_SIGMA_SEARCHED = 0.12
_PARTS = {"lut_count": 218_600, "bram_36k_count": 545, "dsp_count": 900}  # XC7Z045, AMD DS190


def mlp_nodes(sizes: Sequence[int], bits: int) -> list[StreamingNode]:
    """Fully connected layers between consecutive sizes."""
    pairs = pairwise(sizes)
    return [StreamingNode(f"fc{i}", mw, mh, 1.0, bits, bits) for i, (mw, mh) in enumerate(pairs)]


def cnv_nodes(outputs: int = 64, *, holds_maps: bool = False) -> list[StreamingNode]:
    """CNV of FINN: six unpadded 3x3 convolutions over 32 x 32 pixels with two poolings, three fully
    connected layers.

    Args:
        outputs: Of the last layer.
        holds_maps: Whether window generators take in a whole map before they give windows, one
            pixel per cycle, as those of FINN's first library, whose buffer is one map (BNN-PYNQ,
            bnn/src/library/hls/slidingwindow.h, first version).
    """
    channels = (
        (3, 64, 30),
        (64, 64, 28),
        (64, 128, 12),
        (128, 128, 10),
        (128, 256, 3),
        (256, 256, 1),
    )
    nodes = [
        StreamingNode(
            f"conv{i}",
            9 * c_in,
            c_out,
            float(side**2),
            1,
            1,
            start_fraction=1.0 if holds_maps else min(1.0, 3 / side),
            load_cycles=float((side + 2) ** 2) if holds_maps else 0.0,
        )
        for i, (c_in, c_out, side) in enumerate(channels)
    ]
    return nodes + mlp_nodes((256, 512, 512, outputs), 1)


def radioml_nodes() -> list[StreamingNode]:
    """VGG10 for radio signals with 32 filters: seven 1-D convolutions, each followed by a pooling
    by two, three layers.
    """
    nodes = []
    for index in range(7):
        width, vectors = (6 if index == 0 else 96), 1024 >> index
        nodes.append(StreamingNode(f"conv{index}", width, 32, float(vectors), 4, 4, 3 / vectors))
    return nodes + mlp_nodes((256, 128, 128, 24), 4)


#: Foldings that are published for a smaller device and scaled to the design.
_SCALED = frozenset({"cnv-max", "cnv-fix"})
#: Layers and, where it is published, the folding of each design by its name in the table.
DESIGNS: dict[str, tuple[list[StreamingNode], str]] = {
    "SFC-max": (mlp_nodes((784, 256, 256, 256, 10), 1), ""),
    "SFC-fix": (mlp_nodes((784, 256, 256, 256, 10), 1), ""),
    "LFC-max": (mlp_nodes((784, 1024, 1024, 1024, 10), 1), ""),
    "LFC-fix": (mlp_nodes((784, 1024, 1024, 1024, 10), 1), ""),
    "CNV-max": (cnv_nodes(holds_maps=True), "cnv-max"),
    "CNV-fix": (cnv_nodes(holds_maps=True), "cnv-fix"),
    "VGG10-RadioML w4a4": (radioml_nodes(), "vgg10-radioml"),
    "KWS-MLP w3a3": (mlp_nodes((490, 256, 256, 256, 12), 3), ""),
}
_BOARDS = {"ZCU104": "zcu104", "Pynq-Z1": "pynq-z1", "Pynq-Z2": "pynq-z2", "U250": "alveo-u250"}
_PYNQ_HZ = 100e6


def _board(name: str, clock_mhz: float) -> FpgaProfile | None:
    """The board at a clock; ZC706 is a ZCU102's profile with the counts of its own part."""
    source = "the table's clock"
    if name == "ZC706":
        device = catalog.device("zcu102")
        counts = {
            key: Sourced(value=value, source="AMD DS190, XC7Z045") for key, value in _PARTS.items()
        }
    elif name in _BOARDS:
        device, counts = catalog.device(_BOARDS[name]), {}
    else:
        return None
    if not isinstance(device, FpgaProfile):
        return None
    clock = _PYNQ_HZ if np.isnan(clock_mhz) else clock_mhz * 1e6
    return device.model_copy(
        update={**counts, "fabric_clock_hz": Sourced(value=clock, source=source)}
    )


@register_suite("fpga-dataflow", "streaming designs of FINN and hls4ml", (SCHEMA,), "model")
def load(folder: DataFolder) -> list[Batch]:
    """One batch per design with a published rate."""
    table = folder.table(SCHEMA)
    return [] if table is None else [_batch(table, index) for index in range(len(table))]


def _batch(table: Table, index: int) -> Batch:
    name, place = str(table["design"][index]), str(table["board"][index])
    fps, known = float(table["fps"][index]), DESIGNS.get(name)
    board = _board(place, float(table["mhz"][index]))
    label, group = np.array([name]), np.array([_group(known[1] if known else "")])
    measured = np.array([1.0 / fps if fps > 0 else np.nan])
    refusal = "layers not published" if known is None else "board unknown" if board is None else ""
    if not refusal and not np.isfinite(measured[0]):
        refusal = "no rate published"
    if refusal or known is None or board is None:
        return refused_batch(place, group, label, np.nan_to_num(measured, nan=1.0), refusal)
    predict = _predictor(known[0], known[1], board, fps)
    return Batch(place, board, group, label, measured, np.full(1, np.nan), predict)


def _group(folding: str) -> str:
    """How a design's folding is known."""
    if not folding:
        return "folding search"
    return "scaled folding" if folding in _SCALED else "published folding"


def _predictor(
    nodes: list[StreamingNode], folding: str, board: FpgaProfile, fps: float
) -> Callable[[Any | None], Prediction]:
    def predict(_parameters: Any | None) -> Prediction:
        values = fpga_parameters()
        if folding:
            path = data_root() / "calibration" / "published" / "finn_folding" / f"{folding}.json"
            design = folded_design(nodes, read_folding(path), board, values)
        else:
            design = _smallest(nodes, board, fps)
        return Prediction(
            np.array([1.0 / design.fps]), np.array([_SIGMA_KNOWN if folding else _SIGMA_SEARCHED])
        )

    return predict


def _smallest(nodes: list[StreamingNode], board: FpgaProfile, fps: float) -> Any:
    """The smallest design at the published rate; a rate printed rounded up may be a little above a
    reachable one.
    """
    try:
        return fold_network(nodes, board, fpga_parameters(), target_fps=fps)
    except AccelsimError:
        return fold_network(nodes, board, fpga_parameters(), target_fps=0.95 * fps)

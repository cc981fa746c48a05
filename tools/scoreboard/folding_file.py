"""Reads folding files of FINN: how parallel each layer of a streaming design is.

A file maps layer names to attributes ("MatrixVectorActivation_0": {"PE": 16, "SIMD": 3, ...}); only
matrix layers (MVAU, MatrixVectorActivation, StreamingFCLayer, VVAU) take part, in the order of
their numbers. PE must divide the matrix height and SIMD its width. hls4ml's reuse factor says the
same in one number: multiplications per multiplier.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from accelsim.cost.fpga.dataflow import DataflowDesign, StreamingNode, design_of_folding
from accelsim.cost.fpga.fpga_parameters import FpgaParameters
from accelsim.errors import InvalidValueError, ProfileError
from accelsim.files.datafile import read_json
from accelsim.frozen import frozen
from accelsim.hardware.profile import FpgaProfile

_MATRIX_LAYER = re.compile(
    r"^(MVAU|VVAU|MatrixVectorActivation|VectorVectorActivation|StreamingFCLayer)\w*?_(\d+)$"
)
_LARGEST = 2**20


@frozen
class LayerFolding:
    """Folding of one layer.

    Attributes:
        name: Layer name in the file.
        pe: Matrix rows in parallel, >= 1.
        simd: Matrix columns in parallel, >= 1.
    """

    name: str
    pe: int
    simd: int


def read_folding(path: str | Path) -> tuple[LayerFolding, ...]:
    """Foldings of the matrix layers of a file, in order.

    Raises:
        ProfileError: If the file cannot be read, has no matrix layer, or a layer's PE or SIMD is
            missing or no count.
    """
    return parse_folding(read_json(Path(path)), str(path))


def parse_folding(data: Mapping[str, Any], origin: str) -> tuple[LayerFolding, ...]:
    """Foldings of a mapping as a file holds it.

    Args:
        data: Layer names and attributes.
        origin: Where it is from, for messages.

    Raises:
        ProfileError: Naming every layer that is wrong.
    """
    layers = [(match, name) for name in data if (match := _MATRIX_LAYER.match(name))]
    problems = [problem for _, name in layers for problem in _problems(name, data[name])]
    if not layers:
        names = "MatrixVectorActivation_0 or MVAU_hls_0"
        problems.append(f"no matrix layer: expected names like {names} with PE and SIMD")
    if problems:
        raise ProfileError(origin, problems)
    ordered = [name for _, name in sorted(layers, key=lambda layer: int(layer[0][2]))]
    return tuple(LayerFolding(name, data[name]["PE"], data[name]["SIMD"]) for name in ordered)


def _problems(name: str, attributes: Any) -> list[str]:
    if not isinstance(attributes, Mapping):
        return [f"{name}: expected a mapping with PE and SIMD"]
    expected = f"is not a whole number from 1 to {_LARGEST}; give the layer's"
    return [
        f"{name}.{key}: {value!r} {expected} {key}"
        for key in ("PE", "SIMD")
        if type(value := attributes.get(key)) is not int or not 1 <= value <= _LARGEST
    ]


def folded_design(
    nodes: Sequence[StreamingNode],
    foldings: Sequence[LayerFolding],
    device: FpgaProfile,
    values: FpgaParameters,
) -> DataflowDesign:
    """The design a folding file describes: cycles, frame rate and resources.

    Args:
        nodes: Layers of the network, in order.
        foldings: One for each.
        device: Resources and clock.
        values: Parameters.

    Raises:
        InvalidValueError: If there are not as many foldings as layers, or one does not divide its
            layer's matrix.
        DoesNotFitError: Naming the resource that is short.
    """
    if len(nodes) != len(foldings):
        allowed = f"{len(nodes)} matrix layers, one for each layer of the network"
        raise InvalidValueError(
            "folding layers", len(foldings), allowed, "Use the file made for this network."
        )
    for node, folding in zip(nodes, foldings, strict=True):
        for key, part, whole in (("PE", folding.pe, node.mh), ("SIMD", folding.simd, node.mw)):
            if whole % part:
                field = f"{folding.name}.{key}"
                raise InvalidValueError(
                    field, part, f"a divisor of {whole} (layer {node.name})", "Change the folding."
                )
    pe, simd = np.array([(f.pe, f.simd) for f in foldings], dtype=np.float64).T
    return design_of_folding(nodes, pe, simd, device, values)

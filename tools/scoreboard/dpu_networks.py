"""Layers of the networks in published DPU throughput tables, found by the network's name.

`calibration/published/dpu_networks.yaml` says which family writes which network; the row gives the
input size. The layers of a name with a pruning ratio are not known, since the pruned channels are
not published, nor those of one with fewer operations than its layers', unless its rule says that
the table miscounts: those of the whole network are. A row whose operations are half of the
layers' gives multiply-adds where the table says operations; `dpu_corrections.csv` lists these.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache

from accelsim.catalog.workloads import workload
from accelsim.cost.fpga.host_tasks import HostTask
from accelsim.cost.fpga.network_layers import LayerColumns, layer_columns, network_flop
from accelsim.dtype import PRECISIONS
from accelsim.errors import InvalidValueError
from accelsim.frozen import frozen
from accelsim.plain import Values
from accelsim.scoreboard.data_folder import published
from accelsim.workloads.builder import GraphBuilder
from accelsim.workloads.families import load_family
from accelsim.workloads.graph import OperatorGraph
from accelsim.workloads.model import PassShape

#: Operations over the layers' FLOP that tell a count of multiply-adds.
_HALF = (0.45, 0.54)
#: Operations below this share of the layers' FLOP, in a name with a ratio, tell a pruned network.
_PRUNED = 0.97
#: Operations below this share of the layers' FLOP, in any name, tell that the table's network is a
#: narrower one.
_NARROWER = 0.95
_RATIO = re.compile(r"_0\.\d+(?:_|$)")
_WIDTH_RATIO = re.compile(r"mobilenet", re.IGNORECASE)


@frozen(eq=False)
class KnownNetwork:
    """A network whose layers are known.

    Attributes:
        layers: For one image.
        task: What the host does with the outputs.
        flop: Of the layers.
        gives_multiply_adds: Whether the stated operations are multiply-adds.
        is_whole_of: Whether the row's network is a narrower one, and these are those of the whole.
    """

    layers: LayerColumns
    task: HostTask
    flop: float
    gives_multiply_adds: bool
    is_whole_of: bool = False


@cache
def _rules() -> tuple[tuple[re.Pattern[str], Values], ...]:
    entries = published("dpu_networks")["networks"]
    return tuple((re.compile(entry["match"]), entry) for entry in entries)


def network_family(name: str) -> str:
    """What rows of one architecture share: the first part of the name behind the framework, pruned
    or not.
    """
    bare = re.sub(r"^(cf|tf2|tf|pt|dk|torchvision)_(mlperf_)?", "", name)
    first = re.split(r"[_\-]?0\.\d|_", bare)[0].lower()
    return next((stem for stem in _SAME_NETWORK if first.startswith(stem)), first)


#: Starts of names that are one network trained on several data sets.
_SAME_NETWORK = ("vehicle-", "refinedet", "facerec-resnet", "mobilenetedge")


@lru_cache(maxsize=1024)
def known_network(
    name: str, height: float, width: float, operations: float | None
) -> KnownNetwork | None:
    """The layers of a network, or None where they are not known.

    Args:
        name: As in the table, framework first: "cf_resnet50_imagenet_224_224_7.7G".
        height: Input rows; 0 where unknown.
        width: Input columns.
        operations: Operations per image the table states; None where it states none.
    """
    rule = next((entry for pattern, entry in _rules() if pattern.match(name)), None)
    if rule is None or height <= 0 or width <= 0:
        return None
    try:
        layers = layer_columns(_graph(rule, int(height), int(width)))
    except InvalidValueError:  # the network does not take this size
        return None
    flop = network_flop(layers)
    task = HostTask[rule["task"].upper()] if rule.get("task") else HostTask.NONE
    if operations is None or rule.get("miscounted"):
        return KnownNetwork(layers, task, flop, gives_multiply_adds=False)
    share = operations / flop
    has_ratio = bool(_RATIO.search(name)) and not _WIDTH_RATIO.search(name)
    halved = not has_ratio and _HALF[0] < share < _HALF[1]
    is_narrower = share < (_PRUNED if has_ratio else _NARROWER) and not halved
    return KnownNetwork(layers, task, flop, halved, is_narrower)


def _graph(rule: Values, height: int, width: int) -> OperatorGraph:
    if "workload" in rule:
        return (
            workload(rule["workload"]).lower(PassShape(image_size=height), PRECISIONS["int8"]).graph
        )
    family = load_family(rule["family"])
    sizes = {"image_height": height, "image_width": width}
    parameters = family.parameters.model_validate({**rule.get("parameters", {}), **sizes})
    builder = GraphBuilder(PRECISIONS["int8"])
    family.write(builder, parameters, PassShape())
    return builder.build()

"""Whatever type is given where, it is used or refused by a typed error that names the place."""

from __future__ import annotations

import inspect
import math
import warnings

import numpy as np
import pytest

import accelsim
from accelsim.dtype import Dtype, precision
from accelsim.errors import AccelsimError, ProfileError, UnknownNameError
from accelsim.result import Result
from accelsim.training.setup import TrainingPlace
from accelsim.workloads.model import PassShape

#: What functions return: no one else makes one.
_MADE = {
    *("Comparison", "CostTable", "EstimateColumns", "LearnedFiles"),
    *("StepTimes", "SweepResult", "Timeline"),
}
_WRONG = (
    *(None, 3, "x", "\x1b[31m", math.nan, math.inf, [1], [None], (), {"a": 1}, object(), b"x"),
    *(
        True,
        np.float64(0.5),
        np.int64(2),
        np.array([1.0, 2.0]),
        np.array(["x"]),
        np.array("x"),
        np.bool_(False),
    ),
)
_LENET = accelsim.workload("lenet-5")
_ONE = np.array([1])
_CLUSTER = accelsim.cluster("dgx-h100")
#: Arguments that are needed for a call that works.
_NEEDED = {
    "Arrivals": {"rate_per_s": 1.0},
    "Cluster": {name: getattr(_CLUSTER, name) for name in _CLUSTER.__dataclass_fields__},
    "Fleet": {"pools": (accelsim.Pool("a", "t4", 1),)},
    "Pool": {"name": "a", "device_name": "t4", "device_count": 1},
    "Precision": {
        "name": "p",
        **dict.fromkeys(("compute", "weight", "activation"), Dtype.FP32),
        **dict.fromkeys(("kv_cache", "unquantised"), Dtype.FP32),
    },
    "PriceBook": {"offers": ()},
    "RandomStreams": {"seed": 0},
    "RankGroup": {"size": 8},
    "RunLength": {"epochs": 1.0, "epoch_samples": 8.0},
    "Scenario": {
        "name": "s",
        "services": [{"name": "a", "model": "lenet-5", "requests_per_s": 1, "latency_p99_s": 1}],
    },
    "ShapeColumns": dict.fromkeys(accelsim.ShapeColumns.__dataclass_fields__, _ONE),
    "TaskColumns": {"resource": np.array([0]), "duration_s": np.ones(1), "resources": ("a",)},
    "cluster": {"name": "dgx-h100"},
    "collective_costs": {
        "kind": "all_reduce",
        "payload_bytes": [1e6],
        "group": accelsim.RankGroup(8),
        "cluster": _CLUSTER,
    },
    "compare": {"workloads": "lenet-5", "devices": "t4"},
    "device": {"name": "t4"},
    "estimate": {"workload": _LENET, "device": accelsim.device("t4")},
    "estimate_many": {"workload": "lenet-5", "device": "t4"},
    "fits": {"workload": "llama-3.2-1b", "device": "t4"},
    "learn": {"files": ["examples/learn/vllm_bench.json"]},
    "lower": {
        "workload": _LENET,
        "model": accelsim.ModelOptions(precision="fp32"),
        "shapes": accelsim.ShapeColumns.of(batch=[1]),
    },
    "operator_costs": {
        "graph": _LENET.lower(PassShape(batch=1), precision("fp32")).graph,
        "device": "t4",
    },
    "plan": {"scenario": {"name": "s"}},
    "serve": {
        "workload": "lenet-5",
        "device": "t4",
        "arrivals": accelsim.Arrivals(rate_per_s=1.0, requests=2),
    },
    "simulate": {"workload": "lenet-5", "device": "t4"},
    "sweep": {"spec": {"name": "s", "fixed": {}, "vary": {}}},
    "train": {"workload": "lenet-5", "device": "t4"},
    "workload": {"name": "lenet-5"},
}


def _is_made(value):
    return isinstance(value, type) and issubclass(value, Result)


_CALLABLE = sorted(
    name
    for name in set(accelsim.__all__) - _MADE - {"capture", "errors"}
    if not _is_made(getattr(accelsim, name))
)


def _places(name):
    """Keywords of a call; of those that it hands on, the fields of a run and of a price."""
    listed = inspect.signature(getattr(accelsim, name)).parameters.values()
    found = [one.name for one in listed if one.kind is not one.VAR_KEYWORD]
    if name == "estimate":
        found += accelsim.estimation.options.EstimateKeywords.__annotations__
    if name == "train":
        found += TrainingPlace.__dataclass_fields__
    return found


def _outcome(call, arguments):
    """ "used", or the error that was raised."""
    try:
        call(**arguments)
    except Exception as error:  # noqa: BLE001  (what is looked for)
        return error
    return "used"


@pytest.mark.parametrize("name", _CALLABLE)
def test_a_wrong_type_is_used_or_refused_by_name(name, tmp_path):
    call, needed = getattr(accelsim, name), dict(_NEEDED.get(name, {}))
    if name == "sweep":
        needed["out"] = str(tmp_path / "out")
    places = _places(name)
    assert set(needed) <= set(places)
    wrong = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for place in places:
            for value in _WRONG:
                found = _outcome(call, needed | {place: value})
                if not _is_right(place, found):
                    wrong.append((place, value, found))
    assert not wrong


def _is_right(place, found):
    """Used, or refused by what is wrong: the argument, an unknown name, or a file."""
    if isinstance(found, str | UnknownNameError | ProfileError):
        return True
    words = place.removesuffix("_per_s").removesuffix("s").replace("image_size", "size")
    return isinstance(found, AccelsimError) and words in str(found)


@pytest.mark.parametrize("name", [name for name in _NEEDED if name not in {"plan", "sweep"}])
def test_the_calls_work_as_they_are(name):
    assert _outcome(getattr(accelsim, name), _NEEDED[name]) == "used"

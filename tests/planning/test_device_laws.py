"""Laws over every GPU, batches and what compilers gain; and those of batches over every device and
model of the catalogue.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelsim import catalog, estimate, workload_catalog
from accelsim.errors import AccelsimError
from accelsim.planning.estimate_many import estimate_many

BATCHES = (1, 2, 3, 4, 8, 16, 17, 32, 33, 64, 128, 512, 2048)
ROUNDING = 1e-9


def boards() -> list[str]:
    names = [name for name in catalog.device_names() if "/" not in name]
    return [name for name in names if catalog.device(name).device_class == "gpu"]


def falls(latency_s: np.ndarray, throughput_per_s: np.ndarray) -> list[str]:
    """What of a batch sweep breaks a law; runs without figures are NaN and come last."""
    known = np.isfinite(latency_s)
    time_s, rate = latency_s[known], throughput_per_s[known]
    found = ["latency"] if (time_s[1:] < time_s[:-1] * (1 - ROUNDING)).any() else []
    return found + ["throughput"] * bool((rate < 0.8 * np.maximum.accumulate(rate)).any())


@pytest.mark.parametrize(
    ("model", "execution"),
    [
        ("resnet-50", "eager"),
        ("resnet-50", "graph"),
        ("bert-base", "graph"),
        ("gpt2", "graph"),
        ("t5-base", "graph"),
        ("dlrm-criteo-kaggle", "graph"),
        ("ncf-ml-20m", "graph"),
        ("gbdt-higgs", "graph"),
        ("resnet-18", "eager"),
        ("text-cnn", "graph"),
        ("fcn-5-26752", "graph"),
        ("lstm-lm-large", "graph"),
    ],
)
def test_larger_batches_take_longer_and_bring_more(model, execution):
    names = boards()
    sweep = estimate_many(
        model,
        np.repeat(names, len(BATCHES)),
        shapes={"batch": np.tile(BATCHES, len(names))},
        execution=execution,
    )
    shape = (len(names), len(BATCHES))
    columns = sweep["latency_s"].reshape(shape), sweep["throughput_per_s"].reshape(shape)
    broken = {name: falls(*pair) for name, *pair in zip(names, *columns, strict=True)}
    assert np.isfinite(columns[0]).any(axis=1).sum() > 0.98 * len(names)
    assert not {name: laws for name, laws in broken.items() if laws}


@pytest.mark.law
@given(
    model=st.sampled_from(workload_catalog.workload_names()),
    name=st.sampled_from([name for name in catalog.device_names() if "/" not in name]),
    mode=st.sampled_from(["inference", "training"]),
    execution=st.sampled_from([None, "eager", "graph"]),
    batches=st.lists(st.sampled_from(BATCHES), min_size=3, max_size=4, unique=True).map(sorted),
)
@settings(max_examples=max(settings.default.max_examples // 16, 1))
def test_larger_batches_take_longer_and_bring_more_everywhere(
    model, name, mode, execution, batches
):
    try:
        runs = [
            estimate(model, name, mode=mode, execution=execution, batch=batch) for batch in batches
        ]
    except AccelsimError:  # a format, an operator or a way of issuing that the device lacks
        return
    fitting = [run for run in runs if run.fits]
    columns = (
        np.array([getattr(run, figure) for run in fitting])
        for figure in ("latency_s", "throughput_per_s")
    )
    assert not falls(*columns)


@pytest.mark.parametrize("model", ["gbdt-higgs", "ncf-ml-20m"])
def test_larger_batches_take_longer_in_training(model):
    broken = []
    for name in boards():
        runs = [estimate(model, name, mode="training", batch=batch) for batch in BATCHES[::3]]
        fitting = [run for run in runs if run.fits]
        laws = falls(
            np.array([run.latency_s for run in fitting]),
            np.array([run.throughput_per_s for run in fitting]),
        )
        broken += [(name, laws)] if laws else []
    assert not broken


@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize("model", ["resnet-50", "bert-base", "ncf-ml-20m"])
def test_a_compiled_network_is_never_slower(model, mode):
    """Neither than a replayed one, nor, where the host calls its kernels, than an eager one."""
    slower, compared = [], 0
    for name in boards():
        try:
            time_s = {
                execution: estimate(model, name, mode=mode, batch=4, execution=execution).latency_s
                for execution in ("eager", "graph", "compiled", "compiled-calls")
            }
        except AccelsimError:  # a format that the board trains in none of
            continue
        if None in time_s.values():  # its memory is too small
            continue
        compared += 1
        for fast, slow in (("compiled", "graph"), ("compiled-calls", "eager")):
            if time_s[fast] > time_s[slow] * (1 + 1e-9):
                slower.append((name, fast, time_s[fast] / time_s[slow]))
    assert not slower
    assert compared > 0.95 * len(boards())

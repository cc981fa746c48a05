"""Laws over every GPU, batches and what compilers gain; and all those of `benchmarks/laws.py` over
every device and model of the catalogue.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelsim import catalog, estimate
from accelsim.catalog import workloads as workload_catalog
from accelsim.errors import AccelsimError
from accelsim.estimation.estimate_many import estimate_many
from benchmarks import laws

pytestmark = pytest.mark.long

BATCHES = (1, 2, 3, 4, 8, 16, 17, 32, 33, 64, 128, 512, 2048)


def boards() -> list[str]:
    names = [name for name in catalog.device_names() if "/" not in name]
    return [name for name in names if catalog.device(name).device_class == "gpu"]


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
    broken = {name: laws.falls(*pair) for name, *pair in zip(names, *columns, strict=True)}
    assert np.isfinite(columns[0]).any(axis=1).sum() > 0.98 * len(names)
    assert not {name: found for name, found in broken.items() if found}


@pytest.mark.law
@given(
    data=st.data(),
    model=st.sampled_from(workload_catalog.workload_names()),
    name=st.sampled_from([name for name in catalog.device_names() if "/" not in name]),
    batches=st.lists(st.sampled_from(laws.BATCHES), min_size=3, max_size=4, unique=True),
)
@settings(max_examples=max(settings.default.max_examples // 12, 1))
def test_every_law_holds_everywhere(data, model, name, batches):
    """Of batches, of ways of issuing, of peak, bandwidth and cores."""
    ways = data.draw(st.sampled_from(laws.WAYS[catalog.device(name).device_class]))
    found = [
        *laws.by_way(model, name, ways, sorted(batches)),
        *laws.by_device(model, name, batches[:1]),
    ]
    assert not [(law, way) for law, way, ratios in found if (ratios < 1 - laws.NOISE).any()]


@pytest.mark.parametrize("model", ["gbdt-higgs", "ncf-ml-20m"])
def test_larger_batches_take_longer_in_training(model):
    broken = []
    for name in boards():
        runs = [estimate(model, name, mode="training", batch=batch) for batch in BATCHES[::3]]
        fitting = [run for run in runs if run.fits]
        found = laws.falls(
            np.array([run.latency_s for run in fitting]),
            np.array([run.throughput_per_s for run in fitting]),
        )
        broken += [(name, found)] if found else []
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

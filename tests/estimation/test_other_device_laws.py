"""Laws of every CPU, FPGA and ASIC in the catalogue: more of the device is never slower."""

from functools import lru_cache
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from accelsim import catalog, estimate
from accelsim.errors import UnsupportedOperatorError
from benchmarks.laws import NOISE, scaled, with_cores, with_rates

CLASSES = ("cpu", "fpga", "asic")
DEVICES = [n for n in catalog.device_names() if catalog.device(n).device_class in CLASSES]
CPUS = [n for n in DEVICES if catalog.device(n).device_class == "cpu"]
MODELS = st.sampled_from(
    ["mobilenet-v2", "resnet-50", "bert-base", "dlrm-criteo-kaggle", "lstm-lm-medium"]
)
BATCHES = st.sampled_from([1, 3, 16, 64])
RATIOS = st.floats(1.05, 4.0)
CHIPS = [n for n in DEVICES if n not in CPUS]


def with_bandwidth(device, ratio):
    bandwidth = device.memory.bandwidth_bytes_per_s
    if bandwidth is None:
        return device
    memory = device.memory.model_copy(update={"bandwidth_bytes_per_s": scaled(bandwidth, ratio)})
    return device.model_copy(update={"memory": memory})


@lru_cache(maxsize=512)
def of_catalogue(model, name, batch):
    try:
        return estimate(model, name, batch=batch)
    except UnsupportedOperatorError:
        return None


def check_faster(model, name, batch, changed):
    base = of_catalogue(model, name, batch)
    if base is None or not base.fits:
        return
    run = estimate(model, changed, batch=batch)
    assert run.latency_s <= base.latency_s * (1 + NOISE)
    assert run.throughput_per_s >= base.throughput_per_s * (1 - NOISE)


@pytest.mark.parametrize("name", DEVICES)
@given(model=MODELS, batch=BATCHES, ratio=RATIOS)
@example(model="lstm-lm-medium", batch=1, ratio=2.0)
@settings(max_examples=2, deadline=None)
def test_more_peak_or_bandwidth_is_never_slower(name, model, batch, ratio):
    for change in (with_rates, with_bandwidth):
        check_faster(model, name, batch, change(catalog.device(name), ratio))


@pytest.mark.parametrize("name", CPUS)
@given(model=MODELS, batch=BATCHES, ratio=RATIOS)
@settings(max_examples=2, deadline=None)
def test_more_cores_are_never_slower(name, model, batch, ratio):
    check_faster(model, name, batch, with_cores(catalog.device(name), ratio))


@pytest.mark.parametrize("name", CPUS)
@given(
    model=MODELS,
    precision=st.sampled_from([None, "fp32", "int8"]),
    mode=st.sampled_from(["inference", "training"]),
)
@settings(max_examples=1, deadline=None)
def test_a_cpu_loses_at_most_a_fifth_of_its_best_throughput_with_the_batch(
    name, model, precision, mode
):
    """Nor is a larger batch ever done sooner."""
    asked = None if precision == "int8" and mode == "training" else precision
    runs = (
        estimate(model, name, batch=batch, precision=asked, mode=mode)
        for batch in (1, 3, 17, 32, 300, 4000)
    )
    fitting = [run for run in runs if run.fits]
    for small, large in pairwise(fitting):
        assert large.latency_s >= small.latency_s * (1 - NOISE)
    for count, run in enumerate(fitting):
        assert run.throughput_per_s >= 0.8 * max(
            best.throughput_per_s for best in fitting[: count + 1]
        )


@pytest.mark.parametrize("name", CPUS)
@given(
    model=st.sampled_from(["mobilenet-v2", "resnet-50", "bert-base", "ncf-ml-20m"]),
    batch=BATCHES,
    mode=st.sampled_from(["inference", "training"]),
)
@example(model="bert-base", batch=4, mode="training")
@settings(max_examples=1, deadline=None)
def test_a_compiled_network_is_never_slower_on_a_cpu(name, model, batch, mode):
    """Than one replayed, nor that than an eager one."""
    eager, replayed, compiled = (
        estimate(model, name, batch=batch, mode=mode, execution=way)
        for way in ("eager", "graph", "compiled")
    )
    if eager.fits:
        assert compiled.latency_s <= replayed.latency_s * (1 + NOISE)
        assert replayed.latency_s <= eager.latency_s * (1 + NOISE)


@pytest.mark.parametrize("name", CHIPS)
@given(
    model=st.sampled_from(["mobilenet-v2", "resnet-50", "bert-base", "gpt2"]),
    batch=st.integers(1, 70),
    more=st.sampled_from([1, 2, 5]),
)
@example(model="fcn-5-26752", batch=15, more=1)  # fills the rows of a Stratix V's grid
@example(model="fcn-5-26752", batch=16, more=1)  # starts a second wave of an IPU's arrays
@example(model="fcn-5-26752", batch=64, more=1)  # starts a second row of a Gaudi's
@example(model="fcn-5-26752", batch=84, more=5)  # no longer fits Eyeriss' array, nor its buffer
@settings(max_examples=1, deadline=None)
def test_a_chip_loses_at_most_a_fifth_with_a_larger_batch(name, model, batch, more):
    """Whether or not the batch fills its cores or its mapping."""
    small, large = (of_catalogue(model, name, size) for size in (batch, batch + more))
    if small is not None and large is not None and large.fits:
        assert large.latency_s >= small.latency_s * (1 - NOISE)
        assert large.throughput_per_s >= 0.8 * small.throughput_per_s

"""Steady-state throughput: the best batch that fits."""

import pytest

from accelsim import catalog
from accelsim.catalog.workloads import workload
from accelsim.dtype import PRECISIONS
from accelsim.errors import UnsupportedOperatorError
from accelsim.scoreboard.throughput import (
    PipelineNetwork,
    Throughput,
    sample_time_s,
    throughput_roofline_s,
)
from accelsim.workloads.model import PassShape

INT8 = PRECISIONS["int8"]


def images(*batches, repeats=1.0, name="resnet-50"):
    shapes = tuple(PassShape(batch=batch) for batch in batches)
    return Throughput(
        (PipelineNetwork(workload(name), shapes, repeats),),
        tuple(float(batch) for batch in batches),
        INT8,
    )


def seconds(run, device):
    return sample_time_s(run, catalog.device(device), None)[0]


def test_more_batches_to_choose_from_are_never_slower():
    assert seconds(images(4, 16, 64), "a30") <= min(
        seconds(images(batch), "a30") for batch in (4, 16, 64)
    )


def test_repeats_multiply_the_time():
    assert seconds(images(8, repeats=5.0), "t4") == pytest.approx(5 * seconds(images(8), "t4"))


def test_stages_add_up():
    one, other = images(4), images(4, name="resnet-18")
    both = Throughput(one.stages + other.stages, one.samples, INT8)
    assert seconds(both, "t4") == pytest.approx(seconds(one, "t4") + seconds(other, "t4"))


def test_a_batch_beyond_the_memory_is_not_chosen():
    huge = images(4, 2**17)
    assert seconds(huge, "a2") == seconds(images(4), "a2")
    with pytest.raises(UnsupportedOperatorError, match="does not fit in memory"):
        seconds(images(2**17), "a2")


@pytest.mark.parametrize(
    "device", ["a2", "l4", "a100-sxm-80gb", "xeon-platinum-8480+", "cloud-ai-100-pro"]
)
def test_every_class_of_device_is_slower_than_its_arithmetic(device):
    run, profile = images(16, 64), catalog.device(device)
    flop = workload("resnet-50").lower(PassShape(batch=1), INT8).graph.model_flop
    peak = max(float(rate) for rate in profile.peak_flop_per_s.values())
    assert seconds(run, device) > flop / peak
    assert throughput_roofline_s(run, profile) > flop / peak


def test_scores_add_their_traffic():
    """16 bits written where the engine counts 8, and read once, at no more than the data sheet's
    bandwidth.
    """
    plain = images(8)
    chosen = Throughput(plain.stages, plain.samples, INT8, scores=1e7)
    added_s = seconds(chosen, "l4") - seconds(plain, "l4")
    least_s = 3e7 / catalog.device("l4").memory_bandwidth_bytes_per_s
    assert least_s < added_s < 2 * least_s

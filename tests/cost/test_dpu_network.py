"""Whole networks on DPUs: cycles by hand, laws of the layer model, network families against
published counts.
"""

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelsim.cost.fpga.host_tasks import HostTask
from accelsim.cost.fpga.network import (
    DpuBoards,
    DpuRates,
    host_times_s,
    join_networks,
    thread_times_s,
)
from accelsim.cost.fpga.network_layers import layer_columns, network_flop
from accelsim.dtype import PRECISIONS
from accelsim.workloads.builder import GraphBuilder
from accelsim.workloads.families import load_family
from accelsim.workloads.model import PassShape


def network(name, **parameters):
    builder = GraphBuilder(PRECISIONS["int8"])
    family = load_family(name)
    family.write(builder, family.parameters.model_validate(parameters), PassShape())
    return builder


def layers(name="inception-v1", **parameters):
    return layer_columns(network(name, **parameters).build())


def boards(count=1, clock_hz=300e6, cores=1, bandwidth=19.2e9, parallelism=(8, 16, 16)):
    ones = np.ones(count)
    return DpuBoards(
        np.tile(np.array(parallelism, dtype=float), (count, 1)),
        clock_hz * ones,
        cores * ones,
        bandwidth * ones,
        ones,
    )


def times(columns, rates=None, task=HostTask.NONE, **board):
    single, multi = thread_times_s(
        join_networks([columns], [task], boards(**board)), rates or DpuRates()
    )
    return float(single[0]), float(multi[0])


# Parameters and GFLOP as published; names in parentheses are who published them.
PUBLISHED = [
    # timm; Vitis AI
    ("inception-v4", {"image_height": 299, "image_width": 299}, 42_679_816, 24.55),
    # timm; Vitis AI
    ("inception-resnet-v2", {"image_height": 299, "image_width": 299}, 55_843_464, 26.35),
    ("inception-v1", {}, 6_998_552, 3.16),  # BVLC GoogLeNet without biases' share; Vitis AI
    ("edge-classifier", {"network": "efficientnet-lite"}, 4_652_008, 0.78),  # timm; Vitis AI
    ("edge-classifier", {"network": "efficientnet-edge"}, 5_438_392, 4.72),  # timm; Vitis AI
    # timm; 990 M multiply-adds
    ("edge-classifier", {"network": "mobilenet-edge"}, 4_092_713, 1.98),
    ("edge-classifier", {"network": "squeezenet"}, 1_235_496, 0.70),  # torchvision
    (
        "darknet",
        {"version": "4", "classes": 80, "image_height": 416, "image_width": 416},
        64_363_101,
        60.1,
    ),
    (
        "darknet",
        {"version": "2", "classes": 20, "anchors": 5, "image_height": 448, "image_width": 448},
        50_655_389,
        34.0,
    ),
    (
        "edge-detector",
        {
            "network": "superpoint",
            "classes": 256,
            "image_channels": 1,
            "image_height": 480,
            "image_width": 640,
        },
        1_300_865,
        52.4,
    ),
]


@pytest.mark.parametrize(("name", "parameters", "count", "gflop"), PUBLISHED)
def test_networks_have_their_published_size(name, parameters, count, gflop):
    builder = network(name, **parameters)
    assert builder.parameter_totals.parameters == pytest.approx(count, rel=0.006)
    assert builder.build().model_flop / 1e9 == pytest.approx(gflop, rel=0.06)


# Vitis AI model zoo: operations in the networks' names.
@pytest.mark.parametrize(
    ("name", "parameters", "gop"),
    [
        ("resnet-variant", {"block": "bottleneck", "depths": [3, 4, 6, 3]}, 7.7),
        (
            "resnet-variant",
            {
                "block": "bottleneck",
                "depths": [3, 4, 23, 3],
                "stride_in": "middle",
                "stride_last_block": True,
            },
            14.4,
        ),
        (
            "resnet-variant",
            {
                "block": "bottleneck",
                "depths": [3, 8, 36, 3],
                "stride_in": "middle",
                "preactivation": True,
                "stride_last_block": True,
                "image_height": 299,
                "image_width": 299,
            },
            40.47,
        ),
        (
            "sphereface",
            {"depths": [1, 2, 4, 1], "classes": 512, "image_height": 112, "image_width": 96},
            3.5,
        ),
        ("inception-v2", {"stem": "separable"}, 3.88),
        ("edge-segmenter", {"network": "sesr", "image_height": 360, "image_width": 640}, 10.2),
        (
            "edge-segmenter",
            {"network": "erfnet", "classes": 19, "image_height": 512, "image_width": 1024},
            54.0,
        ),
        (
            "edge-detector",
            {"network": "ssd-mobilenet-v1", "classes": 91, "image_height": 300, "image_width": 300},
            2.47,
        ),
        (
            "edge-detector",
            {"network": "ssd-inception-v2", "classes": 91, "image_height": 300, "image_width": 300},
            9.6,
        ),
    ],
)
def test_networks_have_the_operations_of_their_names(name, parameters, gop):
    assert network_flop(layers(name, **parameters)) / 1e9 == pytest.approx(gop, rel=0.04)


def test_cycles_of_one_layer_by_hand():
    # 13 x 13 pixels, 32 to 48 channels, 3 x 3: ceil(13/8) x 13 x ceil(32/16) x ceil(48/16) x 9
    # cycles.
    builder = GraphBuilder(PRECISIONS["int8"])
    builder.conv(builder.input(1, 32, 13, 13), 48, 3)
    joined = join_networks([layer_columns(builder.build())], [HostTask.NONE], boards(clock_hz=1.0))
    assert joined.convolution_s[0] == 2 * 13 * 2 * 3 * 9


def test_a_depthwise_multiplier_repeats_the_layer():
    builder = GraphBuilder(PRECISIONS["int8"])
    builder.conv(builder.input(1, 3, 16, 16), 24, 7, groups=3)
    joined = join_networks([layer_columns(builder.build())], [HostTask.NONE], boards(clock_hz=1.0))
    assert joined.depthwise_s[0] == 2 * 16 * 49 * 8


@settings(max_examples=25, deadline=None)
@given(factor=st.floats(1.01, 8), which=st.sampled_from(["clock_hz", "bandwidth", "cores"]))
def test_monotone_in_clock_bandwidth_and_cores(factor, which):
    columns = layers("edge-classifier", network="mobilenet-v1")
    base = {"clock_hz": 300e6, "bandwidth": 19.2e9, "cores": 1.0}
    slow, fast = times(columns, **base), times(columns, **{**base, which: base[which] * factor})
    assert fast[0] <= slow[0] * (1 + 1e-12)
    assert fast[1] <= slow[1] * (1 + 1e-12)


@settings(max_examples=25, deadline=None)
@given(index=st.integers(0, 7), factor=st.floats(1.1, 4))
def test_costlier_mechanisms_take_longer(index, factor):
    columns, rates = layers("edge-classifier", network="mobilenet-v2"), DpuRates()
    name = fields(rates)[index].name
    slower = factor if not name.endswith("fraction") else 1 / factor
    changed = replace(rates, **{name: getattr(rates, name) * slower})
    assert times(columns, changed)[0] >= times(columns, rates)[0] * (1 - 1e-12)


def test_all_cores_share_the_memory():
    columns = layers()
    single, multi = times(columns, cores=3.0)
    assert single / 3 < multi < single
    starved = times(columns, cores=3.0, bandwidth=2e9)[1]
    moved = join_networks([columns], [HostTask.NONE], boards(bandwidth=2e9))
    assert (
        starved
        >= (moved.weight_s.sum() + moved.read_s.sum() + moved.write_s.sum())
        / DpuRates().shared_map_fraction
        * 0.9
    )


def test_host_work_is_added_to_one_thread_and_hidden_behind_the_cores():
    columns = layers(
        "edge-segmenter", network="erfnet", classes=19, image_height=512, image_width=1024
    )
    plain, pixels = (times(columns, task=task) for task in (HostTask.NONE, HostTask.PIXELS))
    assert pixels[0] - plain[0] == pytest.approx(DpuRates().pixels_s * 512 * 1024 * (19 + 3))
    assert pixels[1] == pytest.approx(plain[1])


def test_rates_and_vectors_are_inverse():
    assert DpuRates.of_vector(DpuRates().vector()).vector() == pytest.approx(DpuRates().vector())


# Vitis AI 3.0 model zoo, KV260 (one B4096 core, 300 MHz), frames per second of one and of all
# threads.
@pytest.mark.parametrize(
    ("name", "parameters", "single_per_s", "multi_per_s"),
    [
        ("inception-v4", {"image_height": 299, "image_width": 299}, 30.9, 31.8),
        (
            "resnet-variant",
            {
                "block": "bottleneck",
                "depths": [3, 4, 23, 3],
                "stride_in": "middle",
                "stride_last_block": True,
            },
            50.3,
            51.7,
        ),
        ("edge-classifier", {"network": "mobilenet-v2", "width_multiplier": 1.4}, 205.7, 228.1),
        (
            "darknet",
            {"version": "3", "classes": 20, "image_height": 416, "image_width": 416},
            14.5,
            14.9,
        ),
    ],
)
def test_first_guess_rates_are_near_published_throughput(
    name, parameters, single_per_s, multi_per_s
):
    single, multi = times(layers(name, **parameters))
    assert 1 / single == pytest.approx(single_per_s, rel=0.35)
    assert 1 / multi == pytest.approx(multi_per_s, rel=0.35)


def test_more_cores_slow_each_other_layer_by_layer_where_memory_is_short():
    rates = DpuRates()
    slow = {
        cores: cores * times(layers(), rates, cores=float(cores), bandwidth=8e9)[1]
        for cores in (1, 2, 3)
    }
    assert slow[1] < slow[2] < slow[3]
    ample = {
        cores: cores * times(layers(), rates, cores=float(cores), bandwidth=1e12)[1]
        for cores in (1, 3)
    }
    assert ample[3] == pytest.approx(ample[1])


def detector(bytes_out):
    columns = layers()
    output = np.zeros_like(columns.output_bytes)
    output[-1] = bytes_out
    return replace(columns, output_bytes=output)


def test_outputs_in_the_host_cache_are_worked_on_by_more_threads():
    rates = replace(DpuRates(), host_threads=1.5, cached_threads=3.0, pixels_s=0.0 + 1e-6)
    within = times(detector(2**20), rates, HostTask.PIXELS)[1]
    beyond = times(detector(2**20 + 1), rates, HostTask.PIXELS)[1]
    assert beyond > 1.9 * within


def test_boxes_are_chosen_from_cached_scores_on_every_processor():
    rates = replace(DpuRates(), cached_threads=1.5, softmax_box_s=1e-6)
    networks = join_networks([detector(2**16)], [HostTask.SOFTMAX_BOXES], boards())
    (alone, few), (same, every) = (host_times_s(networks, rates, count) for count in (None, 4.0))
    assert alone == same
    assert few - every == pytest.approx(2**16 * 1e-6 * (1 / 1.5 - 1 / 4))

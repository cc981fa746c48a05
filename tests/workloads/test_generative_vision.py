"""Detectors, segmentation and latent diffusion."""

import numpy as np
import pytest

from accelsim.catalog.workloads import workload
from accelsim.dtype import PRECISIONS
from accelsim.errors import InvalidValueError
from accelsim.workloads.model import PassShape
from accelsim.workloads.operator import OperatorKind

FP32 = PRECISIONS["fp32"]


def graph_of(name, *, fused=True, **sizes):
    return workload(name).lower(PassShape(**sizes), FP32, fused_attention=fused).graph


def rows(graph, kind):
    return [graph.dimensions_of(row) for row in np.flatnonzero(graph.kind == kind)]


def test_ssd300_predicts_8732_boxes():
    """Liu et al. 2016, section 2: 8,732 default boxes from maps of 38, 19, 10, 5, 3 and 1."""
    graph = graph_of("ssd300-vgg16")
    heads = [
        graph.dimensions_of(i)
        for i, p in enumerate(graph.path)
        if p.startswith("head.regression_head")
    ]
    assert [row["out_h"] for row in heads] == [38, 19, 10, 5, 3, 1]
    assert sum(row["out_h"] ** 2 * row["channels_out"] // 4 for row in heads) == 8732


def test_ssd_mobilenet_predicts_1917_boxes():
    """The TensorFlow detection model's 1,917 anchors."""
    graph = graph_of("ssd-mobilenet-v1")
    heads = [
        graph.dimensions_of(i)
        for i, p in enumerate(graph.path)
        if p.startswith("head.regression_head")
    ]
    assert sum(row["out_h"] ** 2 * row["channels_out"] // 4 for row in heads) == 1917


@pytest.mark.parametrize(("name", "head"), [("yolo-v8n", "model.22"), ("yolo11n", "model.23")])
def test_yolo_predicts_8400_boxes(name, head):
    graph = graph_of(name)
    expectation = graph.dimensions_of(graph.path.index(f"{head}.dfl") + 1)
    assert expectation["out_h"] * expectation["out_w"] == 4 * 8400


def test_yolo11_attends_with_keys_of_half_the_width():
    """Heads of 64 channels over the 20 x 20 positions of the last map; one block in n, two in x."""
    for name, heads, blocks in (("yolo11n", 2, 1), ("yolo11x", 6, 2)):
        attention = rows(graph_of(name), OperatorKind.ATTENTION)
        assert len(attention) == blocks
        for row in attention:
            assert (row["heads"], row["q_len"], row["kv_len"]) == (heads, 400, 400)
            assert (row["head_dim"], row["value_dim"]) == (32, 64)


def test_detr_decodes_a_hundred_objects_from_the_last_map():
    """Carion et al. 2020: 800 x 1,137 pixels, 32 of them a position each way; six layers each."""
    attention = rows(graph_of("detr-resnet-50"), OperatorKind.ATTENTION)
    lengths = [(row["q_len"], row["kv_len"]) for row in attention]
    assert lengths == [(25 * 36, 25 * 36)] * 6 + [(100, 100), (100, 25 * 36)] * 6


def test_original_unet_shrinks_572_to_388():
    """Ronneberger et al. 2015, figure 1."""
    last = rows(graph_of("unet"), OperatorKind.CONV)[-1]
    assert (last["out_h"], last["channels_in"], last["channels_out"]) == (388, 64, 2)


def test_padded_unet_keeps_the_size():
    last = rows(graph_of("unet-padded", image_size=256), OperatorKind.CONV)[-1]
    assert last["out_h"] == 256


def test_stable_diffusion_attends_in_16_transformers():
    graph = graph_of("stable-diffusion-1.5")
    attention = rows(graph, OperatorKind.ATTENTION)
    assert len(attention) == 32
    own, text = attention[0], attention[1]
    assert (own["q_len"], own["kv_len"]) == (4096, 4096)
    assert (text["q_len"], text["kv_len"]) == (4096, 77)


def test_sdxl_has_70_transformer_layers():
    """Podell et al. 2023, table 1: transformer blocks [0, 2, 10], hence 4 + 20 + 10 + 30 + 6
    layers.
    """
    assert len(rows(graph_of("stable-diffusion-xl"), OperatorKind.ATTENTION)) == 2 * 70


@pytest.mark.parametrize("name", ["stable-diffusion-1.5", "stable-diffusion-vae-decoder"])
def test_decomposed_attention_has_the_same_flop_and_more_bytes(name):
    fused, apart = graph_of(name), graph_of(name, fused=False)
    assert apart.model_flop == pytest.approx(fused.model_flop, rel=1e-12)
    assert apart.total_bytes > fused.total_bytes


@pytest.mark.parametrize(
    ("name", "lengths"),
    [
        # A picture of 1,024 pixels is 4,096 tokens: an eighth of it in patches of 2.
        ("flux.1-dev", [4096 + 512] * 57),
        ("stable-diffusion-3.5-medium", [4096 + 333, 4096] * 13 + [4096 + 333] * 11),
    ],
)
def test_picture_and_text_attend_jointly(name, lengths):
    attention = rows(graph_of(name), OperatorKind.ATTENTION)
    assert [row["q_len"] for row in attention] == lengths
    assert all(row["kv_len"] == row["q_len"] for row in attention)


def test_attention_grows_faster_than_pixels():
    small, large = (
        graph_of("stable-diffusion-1.5", image_size=512),
        graph_of("stable-diffusion-1.5", image_size=1024),
    )
    assert 4 < large.model_flop / small.model_flop < 16


def test_module_names_follow_diffusers():
    paths = set(graph_of("stable-diffusion-1.5").path)
    assert {
        "conv_in",
        "time_embedding.linear_1",
        "down_blocks.0.attentions.0.transformer_blocks.0.attn2.to_k",
        "mid_block.attentions.0.proj_in",
        "up_blocks.0.resnets.0.conv_shortcut",
        "up_blocks.3.attentions.2.transformer_blocks.0.ff.net.0.proj",
        "conv_out",
    } <= paths


@pytest.mark.parametrize(
    ("name", "size"), [("stable-diffusion-1.5", 520), ("yolo-v3", 400), ("yolo-v8n", 600)]
)
def test_a_picture_that_does_not_halve_evenly_is_refused(name, size):
    with pytest.raises(InvalidValueError, match="input size"):
        graph_of(name, image_size=size)


def test_retinanet_shares_its_heads_over_five_levels():
    """At 800 pixels the levels are 100, 50, 25, 13 and 7 wide: 9 anchors each make 120,087
    boxes.
    """
    graph = graph_of("retinanet-resnet-50")
    heads = [
        graph.dimensions_of(i)
        for i, path in enumerate(graph.path)
        if path == "head.regression_head.bbox_reg"
    ]
    assert [row["out_h"] for row in heads] == [100, 50, 25, 13, 7]
    assert sum(row["out_h"] ** 2 * row["channels_out"] // 4 for row in heads) == 120_087
    assert len({row["channels_in"] for row in heads}) == 1


def test_three_dimensional_unet_shrinks_132_to_44():
    """Cicek et al. 2016, figure 2."""
    last = rows(graph_of("unet-3d"), OperatorKind.CONV)[-1]
    assert (last["out_d"], last["out_h"], last["out_w"]) == (44, 44, 44)


@pytest.mark.parametrize(
    ("name", "image_size", "tokens"),
    [
        # Qwen's processor rounds sides to whole tokens of 28 (2.5) and 32 pixels (3).
        ("qwen2.5-vl-7b-vision", 1024, 37**2),
        ("qwen2.5-vl-7b-vision", 20, 1),
        ("qwen3-vl-8b-vision", 1024, 32**2),
        ("llama-4-vision", 0, 144),
        ("gemma-3-27b-vision", 0, 256),
    ],
)
def test_a_picture_takes_the_tokens_of_its_model(name, image_size, tokens):
    assert workload(name).parameters.tokens(image_size) == tokens
    last = rows(graph_of(name, image_size=image_size), OperatorKind.GEMM)[-1]
    assert last["m"] == tokens


def test_qwen_attends_within_windows_in_28_of_32_layers():
    attention = rows(graph_of("qwen2.5-vl-7b-vision"), OperatorKind.ATTENTION)
    whole = [index for index, row in enumerate(attention) if row["q_len"] == 74**2]
    assert whole == [7, 15, 23, 31]
    assert all(64 <= row["q_len"] < 128 for row in attention if row["q_len"] != 74**2)
    assert len({row["q_len"] * row["batch"] for row in attention}) == 1

"""Kinds of models, by their operators."""

from __future__ import annotations

import pytest

from accelsim.estimation.likeness import Setting
from accelsim.estimation.simulate import simulate


@pytest.mark.parametrize(
    ("model", "keywords", "kind"),
    [
        ("resnet-50", {}, "convolution"),
        ("resnet-50", {"mode": "training"}, "convolution"),
        ("bert-base", {}, "transformer"),
        ("bert-base", {"fused_attention": False}, "transformer"),
        ("vit-base", {}, "transformer"),
        ("llama-3.2-1b", {}, "generation"),
        ("llama-3.2-1b", {"output_len": 0}, "transformer"),
        ("dlrm-mlperf", {}, "other"),
    ],
)
def test_a_model_is_of_the_kind_that_its_arithmetic_says(model, keywords, kind):
    setting = simulate(model, "h100-sxm-80gb", batch=1, **keywords).setting
    mode = keywords.get("mode", "inference")
    assert setting == Setting(mode, "16-bit", kind)


def test_formats_of_16_bits_are_alike_and_no_others():
    names = {Setting.of("inference", name, "other").precision for name in ("fp16", "bf16")}
    assert names == {"16-bit"}
    assert Setting.of("inference", "int8", "other").precision == "int8"
    assert Setting(*str(Setting.of("training", "tf32", "other")).split()).words == (
        "tf32 training of other models"
    )

"""The networks of the check list are those that were published: their parameters, and what their parts compute."""

from __future__ import annotations

import pytest

from accelsim.calibration.check import CheckCase, check_list, model_graph

torch = pytest.importorskip("torch")

from accelsim.calibration.check_models import CHECK_MODELS, build, first, second, third  # noqa: E402
from accelsim.calibration.check_models.language_models import (  # noqa: E402
    _Experts,
    _GatedMlp,
    _Llama,
    _RmsNorm,
    _rotated,
    mixtral,
)
from accelsim.calibration.check_models.transformers import _Attention, _shift_mask, _WrittenAttention  # noqa: E402

pytestmark = pytest.mark.torch

#: Parameters, and the share by which a definition may differ: none where the network is published to the last weight.
PUBLISHED = {
    "alexnet": (61_100_840, 0.0),  # torchvision's documentation, as the other classifiers without a note
    "vgg-16": (138_357_544, 0.0),
    "resnet-34": (21_797_672, 0.0),
    "densenet-121": (7_978_856, 0.0),
    "mobilenet-v1": (4.2e6, 0.01),  # the paper
    "efficientnet-b0": (5_288_548, 0.0),
    "regnet-y-400mf": (4_344_144, 0.0),
    "convnext-tiny": (28_589_128, 0.0),
    "u-net-full-width": (31.0e6, 0.005),  # the paper's widths; with batch norms and two classes
    "yolo-v3-tiny": (8_858_734 - 2 * 3184, 0.0),  # numbers in its weight file, less running means and variances
    "vit-base-16": (86_567_656, 0.0),
    "swin-tiny": (28_288_354, 0.0),
    "minilm-l6": (22_713_216 - 384 * 385, 0.0),  # the checkpoint, less a pooling layer that sentences do not use
    "whisper-tiny": (37_760_640, 0.0),  # the checkpoint, as the other language models without a note
    "wav2vec2-base": (94_396_320 - 768, 0.0),  # the checkpoint, less the stand-in for masked frames
    "gpt-2-small": (124_439_808, 0.0),
    "t5-small": (60_506_624, 0.0),
    "smollm-135m-prefill": (134_515_008, 0.0),
    "smollm-135m-decode": (134_515_008, 0.0),
    "deepspeech-2": (38e6, 0.01),  # the paper, whatever the depth
    "awd-lstm": (24e6, 0.01),  # the paper, Penn Treebank
    "dlrm-kaggle": (540e6, 0.002),  # 33,762,577 rows of 16, and two perceptrons
    "neumf": ((138_493 + 26_744) * 192, 0.005),  # the tables of MLPerf's MovieLens 20M, and a perceptron
    "temporal-convolution": (70e3, 0.05),  # the paper, sequential digits
    "graph-isomorphism": (1_885_206, 0.0),  # ogbg-molhiv's leaderboard
}


def parameter_count(module):
    return sum(x.numel() for x in module.parameters())


def test_networks_have_their_published_parameters():
    shaped = {"mixtral-shaped"}  # the one that is not of its published size
    assert {case.model for case in check_list((1,), ("fp32",))} == set(PUBLISHED) | shaped
    with torch.device("meta"):
        counts = {name: parameter_count(CHECK_MODELS[name](1)[0]) for name in PUBLISHED}
        assert parameter_count(mixtral(1, 32)) == 46_702_792_704  # Mixtral 8x7B
    wrong = {
        name: counts[name] for name, (count, share) in PUBLISHED.items() if abs(counts[name] - count) > share * count
    }
    assert not wrong


def test_no_model_that_served_development_is_on_the_check_list():
    names = {case.model for case in check_list((1,), ("fp32",))}
    developed = tuple(part.__name__ for part in (first, second, third))
    assert not [name for name in names if CHECK_MODELS[name].__module__.startswith(developed)]


def test_every_model_that_trains_returns_one_tensor():
    with torch.device("meta"):
        for case in {case.model: case for case in check_list((1,), ("fp32",)) if case.is_training}.values():
            module, inputs = CHECK_MODELS[case.model](case.batch)
            output = module.train()(*inputs)
            assert isinstance(output, torch.Tensor), case.model
            assert output.is_floating_point(), case.model
            assert output.requires_grad, case.model


def kept(attention, x, turns):
    """Rotated keys and values that a layer would keep."""
    k, v = (f(x).view(*x.shape[:2], -1, attention.size).transpose(1, 2) for f in (attention.key, attention.value))
    return _rotated(k, *turns), v


def test_a_step_with_a_cache_equals_the_whole_sequence():
    torch.manual_seed(0)
    module = _Llama(32, (4, 2), [_GatedMlp(32, 48) for _ in range(2)], 50, tied=True, base=1e4).eval()
    ids, past = torch.randint(50, (3, 6)), []
    hooks = [
        layer.register_forward_pre_hook(lambda own, args: past.extend(kept(own, *args[:2])))
        for layer in module.attention
    ]
    with torch.no_grad():
        whole = module(ids)
        for hook in hooks:
            hook.remove()
        step = module(ids[:, -1:], *[x[:, :, :-1] for x in past])
    assert torch.allclose(step, whole, atol=1e-5)


def test_experts_in_groups_equal_one_token_at_a_time():
    torch.manual_seed(0)
    module, x = _Experts(16, 24, experts=5), torch.randn(1, 11, 16)
    expected = torch.zeros(11, 16)
    weights, found = module.router(x[0]).softmax(-1).topk(2, -1)
    for token in range(11):
        for weight, expert in zip(weights[token] / weights[token].sum(), found[token], strict=True):
            gate, up = (module.wide[expert] @ x[0, token]).chunk(2)
            expected[token] += weight * (module.narrow[expert] @ (torch.nn.functional.silu(gate) * up))
    assert torch.allclose(module(x)[0], expected, atol=1e-5)


def test_written_attention_equals_the_fused():
    torch.manual_seed(0)
    fused, x, mask = _Attention(32, 4).eval(), torch.randn(2, 9, 32), torch.randn(2, 1, 1, 9)
    written = _WrittenAttention(32, 4).eval()
    written.load_state_dict(fused.state_dict())
    assert torch.allclose(written(x, mask=mask), fused(x, mask=mask), atol=1e-5)


def test_a_shift_parts_what_was_not_beside_each_other():
    mask = _shift_mask(14, 3)
    assert mask.shape == (4, 49, 49)
    assert not mask[0].any()  # the first window was not wrapped around
    assert (mask[3] == 0).sum() == 4 * 4 * 16 + 2 * 12 * 12 + 9 * 9  # areas of 16, 12, 12 and 9 patches


def test_a_graph_has_the_casts_that_its_format_needs():
    models = {"norm": lambda batch: (_RmsNorm(64), (torch.randn(batch, 64),))}
    fp32, bf16 = (model_graph(CheckCase("norm", 8, dtype, 1), models) for dtype in ("fp32", "bf16"))
    assert len(bf16) == len(fp32) + 2  # to single precision and back
    wide = [size for size in bf16.write_bytes if size == 8 * 64 * 4]
    assert len(wide) == 3  # the cast, its square, the product with the reciprocal root


def test_models_are_built_in_the_asked_format():
    module, inputs = build("graph-isomorphism", 2, torch.bfloat16)
    assert {x.dtype for x in module.parameters()} == {torch.bfloat16}
    assert module.eval()(*inputs).shape == (2, 1)

"""The networks of the check list are those that were published: their parameters, and what their parts compute."""

from __future__ import annotations

import pytest

from accelsim.calibration.check import CheckCase, check_list, model_graph
from accelsim.workloads.capture import capture

torch = pytest.importorskip("torch")

from accelsim.calibration.check_models import CHECK_MODELS, build, first, fourth, second, third  # noqa: E402
from accelsim.calibration.check_models.fifth.language_models import _LocalBlock, granite  # noqa: E402
from accelsim.calibration.check_models.fifth.pixels import _Raft  # noqa: E402
from accelsim.calibration.check_models.fifth.recommenders import model_class_one  # noqa: E402
from accelsim.calibration.check_models.fifth.sequences import Tagger  # noqa: E402
from accelsim.calibration.check_models.fourth.language_models import (  # noqa: E402
    Experts,
    GatedMlp,
    Llama,
    RmsNorm,
    mixtral,
    rotated,
)
from accelsim.calibration.check_models.fourth.transformers import (  # noqa: E402
    Attention,
    WrittenAttention,
    _shift_mask,
)

pytestmark = pytest.mark.torch

#: Parameters, and the share by which a definition may differ: none where the network is published to the last weight.
FOURTH = {
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

FIFTH = {
    "ghostnet-1.0": (5.18e6, 0.001),  # timm's tables, as the classifiers below without a note
    "resnext-50-32x4d": (25_028_904, 0.0),  # torchvision's documentation, as the next two
    "mnasnet-1.0": (4_383_312, 0.0),
    "mobilenet-v3-large": (5_483_032, 0.0),
    "repvgg-a0": (9.11e6, 0.001),
    "nature-dqn": (1_687_206, 0.0),  # the paper's layers with the six moves of Pong
    "deeplab-v3-mobilenet-v3": (11_029_328, 0.0),  # torchvision's documentation, as the next three
    "fcn-resnet-50": (35_322_218, 0.0),
    "raft-small": (990_162, 0.0),
    "hrnet-w18-small": (13.19e6, 0.001),
    "pix2pix-u-net": (54.414e6, 1e-5),  # what the authors' program prints
    "beit-base": (86.53e6, 0.001),
    "cait-xxs-24": (11.96e6, 0.001),
    "poolformer-s12": (11.92e6, 0.001),
    "squeezebert": (51.1e6, 0.001),  # the paper
    "pythia-160m": (162_322_944, 0.0),  # the authors' table
    "gpt-neo-125m": (125_198_592, 0.0),  # the checkpoint, as the next
    "qwen2.5-0.5b-prefill": (494_032_768, 0.0),
    "qwen2.5-0.5b-decode": (494_032_768, 0.0),
    "m5-audio": (0.56e6, 0.01),  # the paper's layers; it says 0.5 million
    "quartznet-5x5": (6.7e6, 0.01),  # the paper
    "crnn-text-reader": (8.3e6, 0.01),  # the paper
    "bilstm-crf-tagger": (400_000 * 100 + 8 * 200 * (130 + 200) + 100 * 30, 0.005),  # words, recurrence and letters
    "convlstm": (7_585_296, 0.0),  # the paper
    "deepar": (370 * 20 + 4 * 40 * (25 + 5 * 40 + 6), 0.005),  # customers, and three layers of 40 cells
    "mmoe": ((8 * 16 + 2 * 8) * 499, 0.01),  # experts and gates
    "sasrec": (3417 * 50 + 200 * 50 + 2 * 6 * 50 * 50, 0.01),  # films, places, and products of two layers
    "ft-transformer": (3 * (4 * 192 + 3 * 256) * 192, 0.04),  # products of three layers
    "graphsage": (2 * 602 * 128 + 2 * 256 * 128 + 256 * 41, 0.001),  # products of two layers, and the classes
}
#: The one of each list that is not of its published size, or those.
SHAPED = {"fourth": {"mixtral-shaped"}, "fifth": {"granite-moe-shaped", "dlrm-rm1-shaped"}}


def parameter_count(module):
    return sum(x.numel() for x in module.parameters())


@pytest.mark.parametrize("published", [FOURTH, FIFTH], ids=["fourth", "fifth"])
def test_networks_have_their_published_parameters(published):
    with torch.device("meta"):
        counts = {name: parameter_count(CHECK_MODELS[name](1)[0]) for name in published}
    wrong = {
        name: counts[name] for name, (count, share) in published.items() if abs(counts[name] - count) > share * count
    }
    assert not wrong


def test_networks_that_were_cut_have_their_published_parameters_in_full():
    with torch.device("meta"):
        assert parameter_count(mixtral(1, 32)) == 46_702_792_704  # Mixtral 8x7B
        assert parameter_count(granite(24)) == 1_334_628_352  # Granite 3.0 1B-A400M
        full, products = parameter_count(model_class_one(4_000_000)), 128 * 64 + 64 * 32 + 288 * 256 + 256 * 64 + 64
    assert full == 8 * 4_000_000 * 32 + products + 64 + 32 + 256 + 64 + 1


def test_the_check_list_is_the_fifth_and_the_one_before_is_whole():
    assert {case.model for case in check_list((1,), ("fp32",))} == set(FIFTH) | SHAPED["fifth"]
    before = {name for name, factory in CHECK_MODELS.items() if factory.__module__.startswith(fourth.__name__)}
    assert before == set(FOURTH) | SHAPED["fourth"]


def test_no_model_that_served_development_is_on_the_check_list():
    names = {case.model for case in check_list((1,), ("fp32",))}
    developed = tuple(part.__name__ for part in (first, second, third, fourth))
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
    return rotated(k, *turns), v


@pytest.mark.parametrize("options", [{}, {"biased": True, "scale": 0.5}], ids=["plain", "biased and scaled"])
def test_a_step_with_a_cache_equals_the_whole_sequence(options):
    torch.manual_seed(0)
    module = Llama(32, (4, 2), [GatedMlp(32, 48) for _ in range(2)], 50, tied=True, base=1e4, **options).eval()
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
    module, x = Experts(16, 24, experts=5), torch.randn(1, 11, 16)
    expected = torch.zeros(11, 16)
    weights, found = module.router(x[0]).softmax(-1).topk(2, -1)
    for token in range(11):
        for weight, expert in zip(weights[token] / weights[token].sum(), found[token], strict=True):
            gate, up = (module.wide[expert] @ x[0, token]).chunk(2)
            expected[token] += weight * (module.narrow[expert] @ (torch.nn.functional.silu(gate) * up))
    assert torch.allclose(module(x)[0], expected, atol=1e-5)


def test_written_attention_equals_the_fused():
    torch.manual_seed(0)
    fused, x, mask = Attention(32, 4).eval(), torch.randn(2, 9, 32), torch.randn(2, 1, 1, 9)
    written = WrittenAttention(32, 4).eval()
    written.load_state_dict(fused.state_dict())
    assert torch.allclose(written(x, mask=mask), fused(x, mask=mask), atol=1e-5)


def test_a_shift_parts_what_was_not_beside_each_other():
    mask = _shift_mask(14, 3)
    assert mask.shape == (4, 49, 49)
    assert not mask[0].any()  # the first window was not wrapped around
    assert (mask[3] == 0).sum() == 4 * 4 * 16 + 2 * 12 * 12 + 9 * 9  # areas of 16, 12, 12 and 9 patches


def test_a_graph_has_the_casts_that_its_format_needs():
    models = {"norm": lambda batch: (RmsNorm(64), (torch.randn(batch, 64),))}
    fp32, bf16 = (model_graph(CheckCase("norm", 8, dtype, 1), models) for dtype in ("fp32", "bf16"))
    assert len(bf16) == len(fp32) + 2  # to single precision and back
    wide = [size for size in bf16.write_bytes if size == 8 * 64 * 4]
    assert len(wide) == 3  # the cast, its square, the product with the reciprocal root


def test_models_are_built_in_the_asked_format():
    module, inputs = build("graph-isomorphism", 2, torch.bfloat16)
    assert {x.dtype for x in module.parameters()} == {torch.bfloat16}
    assert module.eval()(*inputs).shape == (2, 1)


def test_probabilities_of_all_tags_of_a_sentence_sum_to_one():
    torch.manual_seed(0)
    module = Tagger(50, 20, 3, 8).eval()
    torch.nn.init.normal_(module.steps)
    words, letters = torch.randint(50, (1, 4)), torch.randint(20, (1, 4, 6))
    tags = torch.cartesian_prod(*[torch.arange(3)] * 4)
    count = len(tags)
    assert count == 3**4
    # the tags that begin and end a sentence may stand within it too, so they are made impossible there
    with torch.no_grad():
        module.head.bias[3:] = -1e9
        found = module(words.expand(count, -1), letters.expand(count, -1, -1), tags)
    assert torch.exp(-found).sum() == pytest.approx(1.0, rel=1e-4)


def test_a_window_sees_the_last_tokens_alone():
    sees = _LocalBlock(8, 2, 12, 3).sees
    assert sees.sum(1).tolist() == [1, 2, *([3] * 10)]
    assert _LocalBlock(8, 2, 12, None).sees.sum(1).tolist() == list(range(1, 13))


def test_all_pairs_are_looked_up_where_the_flow_points():
    torch.manual_seed(0)
    module, (a, b) = _Raft(1), torch.randn(2, 1, 16, 16, 24)
    pairs = module._pairs(a, b)
    rows, columns = torch.meshgrid(torch.arange(16.0), torch.arange(24.0), indexing="ij")
    seen = module._looked_up(pairs, torch.stack([columns, rows]).unsqueeze(0))
    assert seen.shape == (1, 4 * 49, 16, 24)
    own = (a * b).sum(1) / 16**0.5  # each pixel and the same in the other image: the middle of the finest window
    assert torch.allclose(seen[:, 24], own, atol=1e-4)


@pytest.mark.parametrize("name", ["deepar", "sasrec"])
def test_networks_that_foretell_do_otherwise_than_in_training(name):
    module, inputs = build(name, 2)
    with torch.no_grad():
        foretold, trained = module.eval()(*inputs), module.train()(*inputs)
    shapes = {"deepar": ((200, 24), (2, 192)), "sasrec": ((2, 3417), (2, 2, 200))}
    assert (foretold.shape, trained.shape) == shapes[name]


@pytest.mark.parametrize("name", ["raft-small", "bilstm-crf-tagger", "deepar", "sasrec", "granite-moe-shaped"])
def test_every_operator_of_unusual_networks_is_known(name):
    with torch.device("meta"):
        module, inputs = CHECK_MODELS[name](2)
    assert capture(module.eval(), inputs, batch_dimension=None).note is None

"""The networks of the check list are those that were published: their parameters, and what their parts compute."""

from __future__ import annotations

import pytest

from accelsim.calibration.check import CheckCase, check_list, model_graph
from accelsim.workloads.capture import capture

torch = pytest.importorskip("torch")

from accelsim.calibration.check_models import CHECK_MODELS, build, fifth, first, fourth, second, third  # noqa: E402
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
)
from accelsim.calibration.check_models.fourth.transformers import (  # noqa: E402
    Attention,
    WrittenAttention,
    _shift_mask,
)
from accelsim.calibration.check_models.sixth.language_models import (  # noqa: E402
    _Dbrx,
    _LandmarkAttention,
    _StableLm,
    dbrx,
    scanned,
    stable_lm,
)
from accelsim.calibration.check_models.sixth.pixels import _FlowStep  # noqa: E402
from accelsim.calibration.check_models.sixth.sequences import SimpleUnit  # noqa: E402
from accelsim.calibration.check_models.sixth.tables_and_graphs import video_candidates  # noqa: E402

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
_CELLS = 4 * 1024 * (256 + 512 + 1024 + 2) + 4 * 1024 * (1024 + 512 + 1024 + 2)  # the two of a speaker

SIXTH = {
    "lenet-5": (61_706, 0.0),  # the paper's layers, every map of one seen by all of the next
    "wide-resnet-28-10": (36_479_194, 0.0),  # the authors' program; the paper says 36.5 million
    "convnext-v2-atto": (3_708_400, 0.0),  # the checkpoint
    "hardnet-68": (17_565_348, 0.0),  # pytorchcv's table
    "bisenet-v2": (3.36e6, 0.001),  # the reference implementation, without its heads for training
    "rcan": (15_444_667, 0.0),  # the checkpoint for twice the size
    "yolo-v8n": (3_157_200, 0.0),  # what its program prints
    "u2-net-lite": (1_131_181, 0.0),  # the checkpoint
    "glow": (44_235_312, 0.0),  # the layers of its PyTorch version
    "detr-resnet-50": (
        41_302_368 + 222_400,
        0.0,
    ),  # what the authors' program prints, and the first stage, which it fixes
    "visformer-tiny": (10.32e6, 0.001),  # timm's tables, as the next
    "efficientformer-l1": (12.29e6, 0.001),
    "canine-s": (132_082_944, 0.0),  # the checkpoint, as the next two
    "nystromformer": (108_500_112, 0.0),
    "mamba-2-130m": (128_989_632, 0.0),
    "dprnn-tasnet": (2.6e6, 0.01),  # the paper
    "ds-cnn-keywords": (410_700 + 11 * 2 * 276, 0.0),  # the paper's 498 kB less its activations, and norms of their own
    "tacotron-2-decoder": (_CELLS + (80 + 256) * 256 + 128 * (1024 + 512 + 32 + 1) + 62 * 32 + 81 * 1537, 0.0),
    "sru": (205 * 205 + 4 * 205 * 1024 + 5 * 3 * 1024**2 + 6 * 4 * 1024 + 1025 * 205, 0.0),  # the program's default
    "lstm-anomaly-detector": (4 * 80 * (25 + 80 + 2 + 80 + 80 + 2) + 81 * 10, 0.0),  # the paper's layers
    "nfm": (1.45e6, 0.001),  # the paper
    "itransformer": (97 * 512 + 3 * (6 * 513 * 512 + 4 * 512) + 1024 + 513 * 96, 0.0),  # the program's layers
    "gcn-arxiv": (110_120, 0.0),  # ogbn-arxiv's leaderboard
    "evoformer-block": (1.83e6, 0.001),  # 88 million in 48 blocks
}
#: Those of each list that are not of their published size.
SHAPED = {
    "fourth": {"mixtral-shaped"},
    "fifth": {"granite-moe-shaped", "dlrm-rm1-shaped"},
    "sixth": {"stablelm-2-shaped-prefill", "stablelm-2-shaped-decode", "dbrx-shaped", "youtube-dnn-shaped"},
}


def parameter_count(module):
    return sum(x.numel() for x in module.parameters())


@pytest.mark.parametrize("published", [FOURTH, FIFTH, SIXTH], ids=["fourth", "fifth", "sixth"])
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
        assert parameter_count(stable_lm(24, 100_352)) == 1_644_515_328  # StableLM 2 1.6B
        assert parameter_count(dbrx(1, 40)) == 131_596_523_520  # DBRX
        tower = 566 * 1024 + 1025 * 512 + 513 * 256
        assert parameter_count(video_candidates(1_000_000)) == 3 * 256_000_000 + 250 * 32 + 16 * 16 + tower
        full, products = parameter_count(model_class_one(4_000_000)), 128 * 64 + 64 * 32 + 288 * 256 + 256 * 64 + 64
    assert full == 8 * 4_000_000 * 32 + products + 64 + 32 + 256 + 64 + 1


def test_the_check_list_is_the_sixth_and_those_before_are_whole():
    assert {case.model for case in check_list((1,), ("fp32",))} == set(SIXTH) | SHAPED["sixth"]
    for part, published in ((fourth, FOURTH), (fifth, FIFTH)):
        own = {name for name, factory in CHECK_MODELS.items() if factory.__module__.startswith(part.__name__)}
        assert own == set(published) | SHAPED[part.__name__.rpartition(".")[2]]


def test_no_model_that_served_development_is_on_the_check_list():
    names = {case.model for case in check_list((1,), ("fp32",))}
    developed = tuple(part.__name__ for part in (first, second, third, fourth, fifth))
    assert not [name for name in names if CHECK_MODELS[name].__module__.startswith(developed)]


def test_every_model_that_trains_returns_one_tensor():
    with torch.device("meta"):
        for case in {case.model: case for case in check_list((1,), ("fp32",)) if case.is_training}.values():
            module, inputs = build(case.model, case.batch, torch.bfloat16)  # all that grouped products take here
            output = module.train()(*inputs)
            assert isinstance(output, torch.Tensor), case.model
            assert output.is_floating_point(), case.model
            assert output.requires_grad, case.model


def kept(attention, x, turns):
    """Rotated keys and values that a layer would keep."""
    k, v = (part.view(*x.shape[:2], -1, attention.size).transpose(1, 2) for part in attention._parts(x)[1:])
    return attention._turned(k, turns), v


def gated(count=2):
    return [GatedMlp(32, 48) for _ in range(count)]


@pytest.mark.parametrize(
    "decoder",
    [
        lambda: Llama(32, (4, 2), gated(), 50, tied=True, base=1e4),
        lambda: Llama(32, (4, 2), gated(), 50, tied=True, base=1e4, biased=True, scale=0.5),
        lambda: _StableLm(64, 4, [GatedMlp(64, 48)], 50),
        lambda: _Dbrx(32, (4, 2), gated(), 50),
    ],
    ids=["plain", "biased and scaled", "partly turned", "clipped"],
)
def test_a_step_with_a_cache_equals_the_whole_sequence(decoder):
    torch.manual_seed(0)
    module = decoder().eval()
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


def test_states_scanned_in_stretches_equal_one_step_at_a_time():
    torch.manual_seed(0)
    x, a = torch.randn(2, 12, 3, 5), -torch.rand(2, 12, 3)
    b, c = torch.randn(2, 2, 12, 3, 4)
    state, expected = torch.zeros(2, 3, 5, 4), []
    for t in range(12):
        state = state * a[:, t].exp()[..., None, None] + x[:, t, :, :, None] * b[:, t, :, None, :]
        expected.append((state * c[:, t, :, None, :]).sum(-1))
    assert torch.allclose(scanned(x, a, b, c, 4), torch.stack(expected, 1), atol=1e-5)


def test_landmarks_are_inverted_step_by_step():
    torch.manual_seed(0)
    x = (torch.eye(8) * 4 + torch.randn(8, 8)).softmax(-1).expand(1, 2, 8, 8)
    assert torch.allclose(_LandmarkAttention.inverted(x) @ x, torch.eye(8).expand(1, 2, 8, 8), atol=1e-3)


def test_a_flow_knows_what_it_does_to_volumes():
    torch.manual_seed(0)
    step, x = _FlowStep(4, 8), torch.randn(1, 4, 2, 2)
    for parameter in step.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    jacobian = torch.autograd.functional.jacobian(lambda y: step(y, torch.zeros(1))[0], x).view(16, 16)
    assert step(x, torch.zeros(1))[1].item() == pytest.approx(torch.linalg.slogdet(jacobian)[1].item(), abs=1e-4)


def test_a_simple_unit_that_forgets_all_is_a_highway():
    torch.manual_seed(0)
    unit, x = SimpleUnit(6, 6, 0.0).eval(), torch.randn(5, 2, 6)
    with torch.no_grad():
        unit.bias[:6] = -1e9  # forgets the state
        unit.bias[6:] = 1e9  # lets all of the new out
        assert torch.allclose(unit(x), (x @ unit.weight).view(5, 2, 6, 3)[..., 0], atol=1e-6)
        unit.bias[6:] = -1e9
        assert torch.allclose(unit(x), x)


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


@pytest.mark.parametrize("name", ["dbrx-shaped", "youtube-dnn-shaped"])
def test_networks_score_all_classes_or_those_that_training_takes(name):
    with torch.device("meta"):
        module, inputs = CHECK_MODELS[name](2)
    shapes = {"dbrx-shaped": ((2, 12_544), (2, 32, 12_544)), "youtube-dnn-shaped": ((2, 200), (2, 5001))}
    x = torch.empty(2, 32, 768, device="meta")
    if name == "dbrx-shaped":
        found, trained = (module.train(mode)._logits(x) for mode in (False, True))
    else:
        (found, _), trained = module.eval()(*inputs), module.train()(*inputs)
    assert (found.shape, trained.shape) == shapes[name]


@pytest.mark.parametrize("name", ["deepar", "sasrec"])
def test_networks_that_foretell_do_otherwise_than_in_training(name):
    module, inputs = build(name, 2)
    with torch.no_grad():
        foretold, trained = module.eval()(*inputs), module.train()(*inputs)
    shapes = {"deepar": ((200, 24), (2, 192)), "sasrec": ((2, 3417), (2, 2, 200))}
    assert (foretold.shape, trained.shape) == shapes[name]


@pytest.mark.parametrize(
    "name",
    [
        *("raft-small", "bilstm-crf-tagger", "deepar", "sasrec", "granite-moe-shaped"),
        *("detr-resnet-50", "dprnn-tasnet", "dbrx-shaped", "gcn-arxiv", "youtube-dnn-shaped", "evoformer-block"),
    ],
)
def test_every_operator_of_unusual_networks_is_known(name):
    with torch.device("meta"):
        module, inputs = CHECK_MODELS[name](2)
    assert capture(module.eval(), inputs, batch_dimension=None).note is None

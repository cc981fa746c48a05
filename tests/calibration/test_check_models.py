"""The networks of the check list are those that were published: their parameters, and that they can
be captured.
"""

from __future__ import annotations

from math import ceil

import pytest

from accelsim.calibration.check import CheckCase, check_list, model_graph
from accelsim.workloads.capture.module import capture

torch = pytest.importorskip("torch")

from accelsim.calibration.check_models import (  # noqa: E402
    CHECK_MODELS,
    build,
    fifth,
    first,
    fourth,
    second,
    seventh,
    sixth,
    third,
)
from accelsim.calibration.check_models.fifth.language_models import granite  # noqa: E402
from accelsim.calibration.check_models.fifth.recommenders import model_class_one  # noqa: E402
from accelsim.calibration.check_models.fourth.language_models import RmsNorm, mixtral  # noqa: E402
from accelsim.calibration.check_models.language_models import olmoe  # noqa: E402
from accelsim.calibration.check_models.pixels import segmenter  # noqa: E402
from accelsim.calibration.check_models.seventh.language_models import nllb  # noqa: E402
from accelsim.calibration.check_models.seventh.tables_and_graphs import mlperf_dlrm  # noqa: E402
from accelsim.calibration.check_models.sixth.language_models import dbrx, stable_lm  # noqa: E402
from accelsim.calibration.check_models.sixth.tables_and_graphs import video_candidates  # noqa: E402

pytestmark = pytest.mark.torch

#: Parameters, and the share by which a definition may differ: none where the network is published
#: to the last weight.
FOURTH = {
    "alexnet": (
        61_100_840,
        0.0,
    ),  # torchvision's documentation, as the other classifiers without a note
    "vgg-16": (138_357_544, 0.0),
    "resnet-34": (21_797_672, 0.0),
    "densenet-121": (7_978_856, 0.0),
    "mobilenet-v1": (4.2e6, 0.01),  # the paper
    "efficientnet-b0": (5_288_548, 0.0),
    "regnet-y-400mf": (4_344_144, 0.0),
    "convnext-tiny": (28_589_128, 0.0),
    "u-net-full-width": (31.0e6, 0.005),  # the paper's widths; with batch norms and two classes
    "yolo-v3-tiny": (
        8_858_734 - 2 * 3184,
        0.0,
    ),  # numbers in its weight file, less running means and variances
    "vit-base-16": (86_567_656, 0.0),
    "swin-tiny": (28_288_354, 0.0),
    "minilm-l6": (
        22_713_216 - 384 * 385,
        0.0,
    ),  # the checkpoint, less a pooling layer that sentences do not use
    "whisper-tiny": (
        37_760_640,
        0.0,
    ),  # the checkpoint, as the other language models without a note
    "wav2vec2-base": (94_396_320 - 768, 0.0),  # the checkpoint, less the stand-in for masked frames
    "gpt-2-small": (124_439_808, 0.0),
    "t5-small": (60_506_624, 0.0),
    "smollm-135m-prefill": (134_515_008, 0.0),
    "smollm-135m-decode": (134_515_008, 0.0),
    "deepspeech-2": (38e6, 0.01),  # the paper, whatever the depth
    "awd-lstm": (24e6, 0.01),  # the paper, Penn Treebank
    "dlrm-kaggle": (540e6, 0.002),  # 33,762,577 rows of 16, and two perceptrons
    "neumf": (
        (138_493 + 26_744) * 192,
        0.005,
    ),  # the tables of MLPerf's MovieLens 20M, and a perceptron
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
    "bilstm-crf-tagger": (
        400_000 * 100 + 8 * 200 * (130 + 200) + 100 * 30,
        0.005,
    ),  # words, recurrence and letters
    "convlstm": (7_585_296, 0.0),  # the paper
    "deepar": (
        370 * 20 + 4 * 40 * (25 + 5 * 40 + 6),
        0.005,
    ),  # customers, and three layers of 40 cells
    "mmoe": ((8 * 16 + 2 * 8) * 499, 0.01),  # experts and gates
    "sasrec": (
        3417 * 50 + 200 * 50 + 2 * 6 * 50 * 50,
        0.01,
    ),  # films, places, and products of two layers
    "ft-transformer": (3 * (4 * 192 + 3 * 256) * 192, 0.04),  # products of three layers
    "graphsage": (
        2 * 602 * 128 + 2 * 256 * 128 + 256 * 41,
        0.001,
    ),  # products of two layers, and the classes
}
_CELLS = 4 * 1024 * (256 + 512 + 1024 + 2) + 4 * 1024 * (
    1024 + 512 + 1024 + 2
)  # the two of a speaker

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
    "ds-cnn-keywords": (
        410_700 + 11 * 2 * 276,
        0.0,
    ),  # the paper's 498 kB less its activations, and norms of their own
    "tacotron-2-decoder": (
        _CELLS + (80 + 256) * 256 + 128 * (1024 + 512 + 32 + 1) + 62 * 32 + 81 * 1537,
        0.0,
    ),
    "sru": (
        205 * 205 + 4 * 205 * 1024 + 5 * 3 * 1024**2 + 6 * 4 * 1024 + 1025 * 205,
        0.0,
    ),  # the program's default
    "lstm-anomaly-detector": (
        4 * 80 * (25 + 80 + 2 + 80 + 80 + 2) + 81 * 10,
        0.0,
    ),  # the paper's layers
    "nfm": (1.45e6, 0.001),  # the paper
    "itransformer": (
        97 * 512 + 3 * (6 * 513 * 512 + 4 * 512) + 1024 + 513 * 96,
        0.0,
    ),  # the program's layers
    "gcn-arxiv": (110_120, 0.0),  # ogbn-arxiv's leaderboard
    "evoformer-block": (1.83e6, 0.001),  # 88 million in 48 blocks
}
#: Features of a cell's two products and of what its gates see of the memory.
_PEEPING = 4 * 2048 * (2048 + 1) + 3 * 2048

SEVENTH = {
    "mobilenet-v4-small": (3_774_024, 0.0),  # the checkpoint
    "densenet-169": (14_149_480, 0.0),  # torchvision's documentation
    "vovnet-39": (22_600_296, 0.0),  # pytorchcv's table; the paper says 22.6 million
    "shufflenet-v1": (
        1_865_728 - 1000,
        0.0,
    ),  # pytorchcv's table, less the last bias, which the authors' program lacks
    "pwc-net": (8.75e6, 0.001),  # the paper
    "stacked-hourglass": (
        25.1e6,
        0.02,
    ),  # Sun et al., CVPR 2019, table 1; blocks as in its PyTorch version
    "x3d-s": (3.79e6, 0.002),  # pytorchvideo's table
    "resunet": (7.8e6, 0.06),  # the paper, which does not count the 1x1 convolutions of skips
    "sd-vae-decoder": (
        49_490_179 + 20,
        0.0,
    ),  # the checkpoint's decoder, and a 1x1 convolution of four channels before
    "xcit-nano-12": (3.05e6, 0.002),  # timm's tables, as the next
    "tnt-s": (23.76e6, 0.001),
    "mae-base": (
        111_907_840,
        0.0,
    ),  # the checkpoint, as the next three; the discriminator with its head
    "electra-base": (108_891_648 + 769 * 768 + 769, 0.0),
    "gpt-2-medium-prefill": (354_823_168, 0.0),
    "gpt-2-medium-decode": (354_823_168, 0.0),
    "transformer-xl": (151_107_538, 0.0),  # what the authors' program prints
    "funnel-small": (130e6, 0.01),  # the documentation of transformers
    "silero-vad": (309_633, 0.0),  # the checkpoint, its spectrum's fixed waves among them
    "contextnet-s": (10.8e6, 0.02),  # the paper
    "demucs": (1014 * 2**20 / 4, 0.001),  # the authors' table of sizes
    "lstm-autoencoder": (
        3 * _PEEPING + 2 * 4 * 2048 * 4096 + 2 * 2049 * 4096,
        0.0,
    ),  # the paper's layers
    "sketch-rnn": (
        2 * 1024 * (5 + 256 + 2) + 2 * 513 * 128 + 129 * 1024 + 2048 * (133 + 512 + 2) + 513 * 123,
        0.0,
    ),  # the program's default, with a second bias in each gate
    "multi-vae": (20_109 * 600 + 601 * 400 + 201 * 600 + 601 * 20_108, 0.0),  # the paper's layers
    "lightgcn": ((29_858 + 40_981) * 64, 0.0),  # the paper's rows
    "mpnn-qm9": (
        12 * 64
        + 6 * 128
        + 129 * 64**2
        + 64**2
        + 64
        + 2 * 3 * 65 * 64
        + 4 * 64 * (3 * 64 + 2)
        + 129 * 64
        + 65,
        0.0,
    ),  # the layers of its PyTorch version
    "dreamer-rssm": (
        37 * 200 + 2 * 201 * 600 + 201 * 200 + 1225 * 200 + 2 * 201 * 60,
        0.0,
    ),  # the program's layers
}
#: Pools and points of each forecast.
_POOLED = ((2, 4), (2, 2), (1, 1))
_CLICKS = sum((i + 1) * o for i, o in ((2 * 325 * 10 + 13, 400), (400, 400), (400, 400)))
#: Weights of a 3x3 convolution of 128 channels with one filter, and of a 1x1.
_NINE, _ONE = 9 * 128 + 1, 129
_DRAWN = _ONE * 2048 + 3 * 128 * (4 + 2 * _NINE + _ONE) + 2 * 128 + 3 * _NINE
_JUDGED = 128 * (4 + 28 + _NINE) + 128 * (2 * _NINE + _ONE) + 128 * 4 * _NINE + _ONE

EIGHTH = {
    "eca-resnet-50": (
        25_557_032 + 16 * 3,
        0.0,
    ),  # torchvision's documentation of the plain one, and 16 convolutions
    "pyramidnet-110": (1_772_706, 0.0),  # pytorchcv's table; the paper says 1.7 million
    "resnet-50-d": (25_576_264, 0.0),  # timm's checkpoint
    "mobileone-s0": (2.1e6, 0.02),  # the paper, as it is deployed
    "retinaface-mobilenet": (426_608, 0.0),  # the layers of its PyTorch version
    "yolo-v2-tiny": (
        11_237_145 - 2 * 2544,
        0.0,
    ),  # numbers in its weight file, less running means and variances
    "monodepth2": (14_842_236 - 513_000, 0.0),  # the checkpoint, less classes that it does not use
    "transunet": (
        105.28e6 - 147 * 768,
        1e-4,
    ),  # as papers that compare with it say; the places of a smaller image
    "wgan-gp-resnet": (_DRAWN + _JUDGED, 0.0),  # the layers of the authors' program
    "swin-v2-tiny": (28_351_570, 0.0),  # torchvision's documentation
    "efficientvit-b0": (3.41e6, 0.001),  # timm's tables, as the next
    "tinyvit-5m": (5.39e6, 0.001),
    "linformer": (
        124_055_040 - 768 + 12 * 2 * 512 * 128 + 769 * 768 + 769 * 2,
        0.0,
    ),  # RoBERTa's, and short keys
    "roberta-base": (124_697_433, 0.0),  # the checkpoint with its head, as the next two
    "mt5-small": (300_176_768, 0.0),
    "rwkv-169m": (169_342_464, 0.0),
    "crepe": (22_244_328 - 2 * 2176, 0.0),  # the checkpoint, less running means and variances
    "rnnoise": (
        196 * 128 + 385 * 384 + 3 * 6 * 385 * 384 + 1537 * 33,
        0.0,
    ),  # the layers of its program's version 0.2
    "fastspeech-2": (35_159_361, 0.0),  # what its PyTorch version prints
    "predrnn": (23.8e6, 0.002),  # OpenSTL's table
    "text-rcnn": (
        200_000 * 50 + 2 * 50 * (100 + 2) + 151 * 100 + 101 * 4,
        0.0,
    ),  # the paper's layers
    "starspace": (2_100_000 * 100, 0.0),  # a table
    "n-hits": (
        sum(
            (ceil(480 / pool) + 1) * 512 + 3 * 513 * 512 + 513 * (480 + 96 // each)
            for pool, each in _POOLED
        ),
        0.0,
    ),  # its library's default layers
    "fibinet": (
        33_762_577 * 11 + 13 + 2 * 26 * 8 + 325 * 100 + _CLICKS + 400 + 1,
        0.0,
    ),  # the paper's layers
    "appnp": (501 * 64 + 65 * 3, 0.0),  # the paper's layers
    "sac-humanoid": (
        377 * 256 + 257 * 256 + 2 * 257 * 17 + 2 * (394 * 256 + 257 * 256 + 257),
        0.0,
    ),  # the paper's
}
#: Those of each list that are not of their published size.
SHAPED = {
    "fourth": {"mixtral-shaped"},
    "fifth": {"granite-moe-shaped", "dlrm-rm1-shaped"},
    "sixth": {
        "stablelm-2-shaped-prefill",
        "stablelm-2-shaped-decode",
        "dbrx-shaped",
        "youtube-dnn-shaped",
    },
    "seventh": {"nllb-moe-shaped", "dlrm-mlperf-shaped"},
    "eighth": {"olmoe-shaped-prefill", "olmoe-shaped-decode"},
}


def parameter_count(module):
    return sum(x.numel() for x in module.parameters())


@pytest.mark.parametrize(
    "published",
    [FOURTH, FIFTH, SIXTH, SEVENTH, EIGHTH],
    ids=["fourth", "fifth", "sixth", "seventh", "eighth"],
)
def test_networks_have_their_published_parameters(published):
    with torch.device("meta"):
        counts = {name: parameter_count(CHECK_MODELS[name](1)[0]) for name in published}
    wrong = {
        name: counts[name]
        for name, (count, share) in published.items()
        if abs(counts[name] - count) > share * count
    }
    assert not wrong


def test_networks_that_were_cut_have_their_published_parameters_in_full():
    with torch.device("meta"):
        assert parameter_count(mixtral(1, 32)) == 46_702_792_704  # Mixtral 8x7B
        assert parameter_count(granite(24)) == 1_334_628_352  # Granite 3.0 1B-A400M
        assert parameter_count(stable_lm(24, 100_352)) == 1_644_515_328  # StableLM 2 1.6B
        assert parameter_count(dbrx(1, 40)) == 131_596_523_520  # DBRX
        tower = 566 * 1024 + 1025 * 512 + 513 * 256
        assert (
            parameter_count(video_candidates(1_000_000))
            == 3 * 256_000_000 + 250 * 32 + 16 * 16 + tower
        )
        assert parameter_count(olmoe(1, 16)) == 6_919_161_856  # OLMoE 1B-7B
        assert parameter_count(segmenter(224)) == pytest.approx(105.28e6, rel=1e-4)  # TransUNet
        assert parameter_count(nllb(1, 24, 128, 256_206)) == pytest.approx(
            54.5e9, rel=0.001
        )  # NLLB-200
        clicks = sum(
            (i + 1) * o
            for i, o in ((13, 512), (512, 256), (256, 128), (479, 1024), (1024, 1024), (1024, 512))
        )
        assert (
            parameter_count(mlperf_dlrm(40_000_000)) == 187_767_399 * 128 + clicks + 513 * 256 + 257
        )
        full, products = (
            parameter_count(model_class_one(4_000_000)),
            128 * 64 + 64 * 32 + 288 * 256 + 256 * 64 + 64,
        )
    assert full == 8 * 4_000_000 * 32 + products + 64 + 32 + 256 + 64 + 1


def test_the_check_list_is_the_eighth_and_those_before_are_whole():
    assert {case.model for case in check_list((1,), ("fp32",))} == set(EIGHTH) | SHAPED["eighth"]
    for part, published in ((fourth, FOURTH), (fifth, FIFTH), (sixth, SIXTH), (seventh, SEVENTH)):
        own = {
            name
            for name, factory in CHECK_MODELS.items()
            if factory.__module__.startswith(part.__name__)
        }
        assert own == set(published) | SHAPED[part.__name__.rpartition(".")[2]]


def test_no_model_that_served_development_is_on_the_check_list():
    names = {case.model for case in check_list((1,), ("fp32",))}
    developed = tuple(
        part.__name__ for part in (first, second, third, fourth, fifth, sixth, seventh)
    )
    assert not [name for name in names if CHECK_MODELS[name].__module__.startswith(developed)]


def test_every_model_that_trains_returns_one_tensor():
    with torch.device("meta"):
        for case in {
            case.model: case for case in check_list((1,), ("fp32",)) if case.is_training
        }.values():
            module, inputs = build(
                case.model, case.batch, torch.bfloat16
            )  # all that grouped products take here
            output = module.train()(*inputs)
            assert isinstance(output, torch.Tensor), case.model
            assert output.is_floating_point(), case.model
            assert output.requires_grad, case.model


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


@pytest.mark.parametrize("name", ["dbrx-shaped", "youtube-dnn-shaped"])
def test_networks_score_all_classes_or_those_that_training_takes(name):
    with torch.device("meta"):
        module, inputs = CHECK_MODELS[name](2)
    shapes = {
        "dbrx-shaped": ((2, 12_544), (2, 32, 12_544)),
        "youtube-dnn-shaped": ((2, 200), (2, 5001)),
    }
    x = torch.empty(2, 32, 768, device="meta")
    if name == "dbrx-shaped":
        found, trained = (module.train(mode)._logits(x) for mode in (False, True))
    else:
        (found, _), trained = module.eval()(*inputs), module.train()(*inputs)
    assert (found.shape, trained.shape) == shapes[name]


@pytest.mark.parametrize("name", ["deepar", "sasrec", "multi-vae"])
def test_networks_that_foretell_do_otherwise_than_in_training(name):
    module, inputs = build(name, 2)
    with torch.no_grad():
        foretold, trained = module.eval()(*inputs), module.train()(*inputs)
    shapes = {
        "deepar": ((200, 24), (2, 192)),
        "sasrec": ((2, 3417), (2, 2, 200)),
        "multi-vae": ((2, 20_108), (2,)),
    }
    assert (foretold.shape, trained.shape) == shapes[name]


@pytest.mark.parametrize(
    "name",
    [
        *("raft-small", "bilstm-crf-tagger", "deepar", "sasrec", "granite-moe-shaped"),
        *(
            "detr-resnet-50",
            "dprnn-tasnet",
            "dbrx-shaped",
            "gcn-arxiv",
            "youtube-dnn-shaped",
            "evoformer-block",
        ),
        *(
            "pwc-net",
            "mae-base",
            "transformer-xl",
            "funnel-small",
            "nllb-moe-shaped",
            "silero-vad",
            "demucs",
        ),
        *("sketch-rnn", "lightgcn", "mpnn-qm9", "dreamer-rssm"),
        *(
            "transunet",
            "swin-v2-tiny",
            "tinyvit-5m",
            "linformer",
            "olmoe-shaped-prefill",
            "fastspeech-2",
            "text-rcnn",
        ),
        *("starspace", "n-hits", "appnp", "sac-humanoid"),
    ],
)
def test_every_operator_of_unusual_networks_is_known(name):
    with torch.device("meta"):
        module, inputs = CHECK_MODELS[name](2)
    assert capture(module.eval(), inputs, batch_dimension=None).note is None

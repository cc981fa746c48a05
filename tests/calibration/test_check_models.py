"""The networks of the check list are those that were published: their parameters, and that they can
be captured and trained.
"""

from __future__ import annotations

import pytest

from accelsim.calibration.check import CheckCase, check_list, model_graph
from accelsim.calibration.gpu_check import gpu_check_list
from accelsim.workloads.capture.torch.module import capture

torch = pytest.importorskip("torch")

from accelsim.calibration.check_models import CHECK_MODELS, in_format  # noqa: E402
from accelsim.calibration.check_models.language_models import RmsNorm, olmoe  # noqa: E402

pytestmark = pytest.mark.torch

#: Parameters, from torchvision's documentation unless a note names another source.
PUBLISHED = {
    "resnet-50": 25_557_032,
    "mobilenet-v2": 3_504_872,
    "roberta-base": 124_697_433,  # the checkpoint with its head, as the next
    "gpt2-large": 774_030_080,  # the checkpoint, as the next three
    "llama-3.1-8b-prefill": 8_030_261_248,
    "llama-3.1-8b-decode": 8_030_261_248,
}
#: Parameters that are published in part of their digits, and by how much they may differ.
ROUNDED = {
    "vit-large": (304.33e6, 0.001),  # timm's table, as the next; no class token
    "u-net": (31.0e6, 0.005),  # the paper's widths; with batch norms and two classes
    "roberta-large": (355e6, 0.005),  # the paper
    "transformer-base": (65e6, 0.03),  # the paper; its places have no parameters
}
#: Those that are of no published size.
SHAPED = {
    "olmoe-shaped-prefill",
    "olmoe-shaped-decode",
    "lstm-classifier",
    "dlrm",
    "text-cnn",
}


def parameter_count(module):
    return sum(x.numel() for x in module.parameters())


@pytest.fixture(scope="module")
def counts():
    with torch.device("meta"):
        return {name: parameter_count(factory(1)[0]) for name, factory in CHECK_MODELS.items()}


def test_networks_have_their_published_parameters(counts):
    assert {name: counts[name] for name in PUBLISHED} == PUBLISHED


def test_networks_have_about_the_parameters_that_were_published_rounded(counts):
    for name, (count, share) in ROUNDED.items():
        assert counts[name] == pytest.approx(count, rel=share), name


def test_a_network_that_was_cut_has_its_published_parameters_in_full():
    with torch.device("meta"):
        assert parameter_count(olmoe(1, 16)) == 6_919_161_856  # OLMoE 1B-7B


def test_every_network_is_on_a_check_list_and_has_known_parameters():
    on_cpu = {case.model for case in check_list((1,), ("fp32",))}
    on_gpu = {case.model for case in gpu_check_list(["fp32", "bf16"])}
    assert on_cpu | on_gpu == set(CHECK_MODELS)
    assert set(PUBLISHED) | set(ROUNDED) | SHAPED == set(CHECK_MODELS)
    assert len(CHECK_MODELS) <= 40


def trained_models():
    cases = [*check_list((1,), ("fp32",)), *gpu_check_list(["fp32", "bf16"])]
    return sorted({case.model for case in cases if case.is_training})


@pytest.mark.parametrize("name", trained_models())
def test_every_model_that_trains_returns_one_tensor(name):
    with torch.device("meta"):
        module, inputs = in_format(
            CHECK_MODELS[name](2), torch.bfloat16
        )  # all that grouped products take here
        output = module.train()(*inputs)
    assert isinstance(output, torch.Tensor)
    assert output.is_floating_point()
    assert output.requires_grad


UNUSUAL = ("olmoe-shaped-prefill", "lstm-classifier", "dlrm")


@pytest.mark.parametrize("name", UNUSUAL)
def test_every_operator_of_unusual_networks_is_known(name):
    with torch.device("meta"):
        module, inputs = CHECK_MODELS[name](2)
    assert capture(module.eval(), inputs, batch_dimension=None).note is None


def test_a_graph_has_the_casts_that_its_format_needs():
    models = {"norm": lambda batch: (RmsNorm(64), (torch.randn(batch, 64),))}
    fp32, bf16 = (model_graph(CheckCase("norm", 8, dtype, 1), models) for dtype in ("fp32", "bf16"))
    assert len(bf16) == len(fp32) + 2  # to single precision and back
    wide = [size for size in bf16.write_bytes if size == 8 * 64 * 4]
    assert len(wide) == 3  # the cast, its square, the product with the reciprocal root


def test_models_are_built_in_the_asked_format():
    module, inputs = in_format(CHECK_MODELS["mobilenet-v2"](2), torch.bfloat16)
    assert {x.dtype for x in (*module.parameters(), *inputs)} == {torch.bfloat16}
    assert module.eval()(*inputs).shape == (2, 1000)

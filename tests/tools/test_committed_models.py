"""Networks that have left the check list are those that were published, by their parameters."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from accelsim.calibration.check_models import CHECK_MODELS  # noqa: E402
from tools.committed_models import COMMITTED_MODELS  # noqa: E402

pytestmark = pytest.mark.torch

#: Parameters, from torchvision's documentation unless a note names another source.
PUBLISHED = {
    "resnet-50-d": 25_576_264,  # timm's checkpoint
    "pyramidnet-110": 1_772_706,  # pytorchcv's table; the paper says 1.7 million
    "monodepth2": 14_842_236 - 513_000,  # the checkpoint, less classes that it does not use
    "mt5-small": 300_176_768,  # the checkpoint
}


@pytest.fixture(scope="module")
def counts():
    with torch.device("meta"):
        networks = {name: factory(1)[0] for name, factory in COMMITTED_MODELS.items()}
    return {name: sum(x.numel() for x in m.parameters()) for name, m in networks.items()}


def test_networks_have_their_published_parameters(counts):
    one_in_part = counts.pop("mobileone-s0")
    assert counts == PUBLISHED
    assert one_in_part == pytest.approx(2.1e6, rel=0.02)  # the paper, as it is deployed


def test_none_is_on_the_check_list():
    assert not set(COMMITTED_MODELS) & set(CHECK_MODELS)

"""Plain recurrent layers step by step: what they compute, and what a capture for a CPU has of
them.
"""

from collections import Counter

import pytest

torch = pytest.importorskip("torch")

from accelsim.dtype import precision  # noqa: E402
from accelsim.workloads.capture.torch.module import capture  # noqa: E402
from accelsim.workloads.capture.torch.stepped_layers import stepped  # noqa: E402
from accelsim.workloads.model import PassShape  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
@pytest.mark.parametrize(
    ("layers", "bidirectional", "bias", "batch_first"),
    [(1, False, True, False), (2, True, False, True)],
)
def test_steps_compute_what_the_layer_does(nonlinearity, layers, bidirectional, bias, batch_first):
    settings = {"bias": bias, "batch_first": batch_first, "bidirectional": bidirectional}
    layer = torch.nn.RNN(5, 3, layers, nonlinearity=nonlinearity, **settings)
    x, first = (
        torch.randn(4, 6, 5),
        torch.randn(layers * (2 if bidirectional else 1), 4 if batch_first else 6, 3),
    )
    flags = (bias, layers, 0.0, False, bidirectional, batch_first)
    with torch.no_grad():
        found = stepped(f"rnn_{nonlinearity}", x, first, list(layer.parameters()), *flags)
        for mine, theirs in zip(found, layer(x, first), strict=True):
            assert torch.allclose(mine, theirs, atol=1e-6)


@pytest.mark.parametrize("fused_always", [True, False])
def test_a_capture_for_a_cpu_has_a_product_for_each_step_and_one_for_all_inputs(fused_always):
    layer, x = torch.nn.RNN(5, 3, batch_first=True), torch.randn(4, 6, 5)
    names = Counter(
        capture(layer, (x,), fused_always=fused_always)
        .lower(PassShape(batch=4), precision("fp32"))
        .graph.name
    )
    assert names == (
        {"rnn_tanh.layer0": 1, "zeros": 1}
        if fused_always
        else {"addmm": 6, "mm": 1, "add.in_place": 7, "tanh": 6, "stack": 2, "clone": 1, "zeros": 1}
    )

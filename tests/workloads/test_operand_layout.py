"""Stretches in which loops walk operands, by hand and as captures count them."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from accelsim.dtype import precision  # noqa: E402
from accelsim.workloads.capture.torch.module import capture  # noqa: E402
from accelsim.workloads.model import PassShape  # noqa: E402
from accelsim.workloads.operator import OperatorKind  # noqa: E402

pytestmark = pytest.mark.torch


class Apply(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def graph_of(function, *inputs):
    workload = capture(Apply(function), inputs, batch_dimension=None, merge_attention=False)
    return workload.lower(PassShape(batch=workload.default.batch), precision("fp32")).graph


CASES = [
    ("contiguous", torch.add, [(4, 5, 6), (4, 5, 6)], 1),
    ("bias", torch.add, [(20, 6), (6,)], 20),
    ("number of each row", torch.mul, [(20, 6), (20, 1)], 20),
    ("channel", torch.mul, [(2, 3, 4, 4), (2, 3, 1, 1)], 6),
    ("mask of a batch", torch.add, [(2, 3, 4, 4), (1, 1, 4, 4)], 6),
    ("outer product", lambda x, y: x[:, :, None] * y[:, None], [(2, 3, 10), (2, 4, 10)], 24),
    ("columns first", lambda x, y: x + y.t(), [(7, 5), (5, 7)], 7),
    ("half of each row", lambda x: x[:, :3] * 2.0, [(8, 6)], 8),
    ("side by side", lambda x, y: torch.cat([x, y], -1), [(9, 4), (9, 2)], 18),
    ("below each other", lambda x, y: torch.cat([x, y]), [(9, 4), (3, 4)], 2),
    ("heads to the front", lambda x: x.transpose(0, 1).contiguous(), [(8, 3, 5)], 24),
]


@pytest.mark.parametrize(
    ("function", "shapes", "runs"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_stretches(function, shapes, runs):
    graph = graph_of(function, *(torch.randn(shape) for shape in shapes))
    kind = OperatorKind(int(graph.kind[0]))
    assert graph.dimension("runs", np.array([0]), kind).tolist() == [runs]


@pytest.mark.parametrize("tokens_first", [True, False])
def test_fused_attention_leaves_its_result_as_the_queries_lie(tokens_first):
    shape = (2, 16, 4, 8) if tokens_first else (2, 4, 16, 8)
    heads = [torch.randn(shape) for _ in range(3)]

    def attend(*parts):
        q, k, v = (x.transpose(1, 2) for x in parts) if tokens_first else parts
        return torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2)

    graph = graph_of(lambda *parts: attend(*parts).flatten(2), *heads)
    assert len(graph) == (1 if tokens_first else 2)  # merging the heads copies what lies apart
    assert attend(*heads).is_contiguous() == tokens_first

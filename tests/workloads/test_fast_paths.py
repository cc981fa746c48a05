"""Attention modules in inference against what torch runs in their place, operator by operator."""

from collections import Counter

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.profiler import ProfilerActivity, profile  # noqa: E402
from torch.utils import backend_registration  # noqa: E402

from accelsim.errors import CaptureError  # noqa: E402
from accelsim.workloads.capture.torch.module import capture  # noqa: E402
from accelsim.workloads.operator import IN_PLACE, OperatorKind  # noqa: E402

pytestmark = pytest.mark.torch
K = OperatorKind

#: Operators that do the work, by their ATen names.
WORK = ("mm", "addmm", "bmm", "_softmax", "_masked_softmax", "native_layer_norm", "gelu", "relu")


def layer(**options):
    return nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, **options).eval()


def rows(module, inputs, *, on_cpu=True, **options):
    """The captured rows, on a CPU as eager execution runs them."""
    if on_cpu:
        options |= {"merge_attention": False, "fused_always": False}
    graph = capture(module, inputs, batch_dimension=None, **options).captured.forward.graph.graph
    return graph, [name.removesuffix(".strided") for name in graph.name]


def counted(names):
    plain = (name.removesuffix(IN_PLACE).rstrip("_") for name in names)
    return Counter(name for name in plain if name in WORK)


def run(module, inputs):
    """How often torch runs each operator."""
    with torch.no_grad(), profile(activities=[ProfilerActivity.CPU]) as profiler:
        module(*inputs)
    ran = Counter()
    for event in profiler.key_averages():
        name = event.key.removeprefix("aten::").removesuffix("_")
        ran[{"_addmm_activation": "addmm"}.get(name, name)] += event.count
    return Counter({name: ran[name] for name in WORK if ran[name]})


def attention(**options):
    return nn.MultiheadAttention(64, 4, batch_first=True, **options).eval()


X = torch.randn(2, 10, 64)
PADDED = torch.zeros(2, 10, dtype=torch.bool)
CASES = {
    "layer": (layer(), (X,)),
    "gelu": (layer(activation="gelu"), (X,)),
    "norm first": (layer(norm_first=True), (X,)),
    "mask of tokens": (layer(), (X, nn.Transformer.generate_square_subsequent_mask(10))),
    "padding": (layer(), (X, None, PADDED)),
    "stack": (nn.TransformerEncoder(layer(), 2).eval(), (X,)),
    "weights": (attention(), (X, X, X)),
    "padded heads": (attention(), (X, X, X, PADDED)),
    "odd heads": (
        nn.TransformerEncoderLayer(60, 3, 128, batch_first=True).eval(),
        (X[..., :60].contiguous(),),
    ),
    "length first": (nn.TransformerEncoderLayer(64, 4, 128).eval(), (X,)),
}


@pytest.mark.parametrize("name", CASES)
def test_captured_operators_are_those_that_run(name):
    module, inputs = CASES[name]
    found = counted(rows(module, inputs)[1])
    ran = run(module, inputs)
    assert found["native_layer_norm"] == ran["native_layer_norm"]
    if name in {
        "odd heads",
        "length first",
    }:  # the modules' own operators, with linear layers as one each
        return
    assert found == ran


def test_sums_and_the_softmax_overwrite_what_they_read():
    _, names = rows(layer(activation="gelu"), X)
    assert [name for name in names if name.endswith(IN_PLACE)] == [
        f"add{IN_PLACE}",
        f"gelu{IN_PLACE}",
        f"add{IN_PLACE}",
    ]


def test_a_gpu_fuses_attention_and_projects_once():
    graph, names = rows(layer(), X, on_cpu=False)
    kinds = [OperatorKind(code) for code in graph.kind.tolist()]
    assert kinds.count(K.ATTENTION) == 1
    assert kinds.count(K.GEMM) == 4
    row = kinds.index(K.ATTENTION)
    assert graph.dims[row, :8].tolist() == [2, 4, 4, 10, 10, 16, 16, 0]
    assert not {"bmm", "_softmax"} & set(names)


def test_written_out_attention_that_is_merged_reads_queries_keys_and_values():
    graph, _ = rows(layer(), (X, None, PADDED), on_cpu=False)
    row = graph.kind.tolist().index(int(K.ATTENTION))
    assert graph.read_bytes[row] >= 4 * 3 * X.numel()


def test_training_runs_the_module_itself():
    graph = capture(layer(), X, training=True, batch_dimension=None).captured.training.graph.graph
    assert "linear1" in " ".join(graph.path)
    assert "_masked_softmax" not in graph.name


def test_sequences_without_their_padding_are_refused_by_name():
    net = nn.TransformerEncoder(layer(), 1).eval()
    with pytest.raises(CaptureError, match="enable_nested_tensor=False"):
        capture(net, {"src": X, "src_key_padding_mask": PADDED})
    net = nn.TransformerEncoder(layer(), 1, enable_nested_tensor=False).eval()
    assert "_masked_softmax" in rows(net, {"src": X, "src_key_padding_mask": PADDED})[1]


def test_torch_is_left_as_it_was():
    before = (torch.overrides.has_torch_function, backend_registration._privateuse1_backend_name)
    capture(layer(), X)
    assert (
        torch.overrides.has_torch_function,
        backend_registration._privateuse1_backend_name,
    ) == before

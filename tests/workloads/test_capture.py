"""Captured FLOP against closed forms, module paths, and one test for each way a FLOP counter is
known to read zero.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from accelsim.workloads.capture.torch.module import capture  # noqa: E402
from accelsim.workloads.model import PassShape  # noqa: E402
from accelsim.workloads.operator import CONTRACTION_KINDS, IN_PLACE, OperatorKind, Phase  # noqa: E402

pytestmark = pytest.mark.torch
K = OperatorKind
ROOT = Path(__file__).resolve().parents[2]


def graph_of(module, inputs, **options):
    options.setdefault("batch_dimension", None)
    captured = capture(module, inputs, **options).captured
    return (captured.training or captured.forward).graph.graph


def kinds(graph):
    return [OperatorKind(code) for code in graph.kind.tolist()]


def phase_flop(graph, phase):
    matrix = np.isin(graph.kind, [int(kind) for kind in CONTRACTION_KINDS])
    return graph.flop[matrix & (graph.phase == int(phase))].sum()


def ids(*shape):
    return torch.empty(*shape, dtype=torch.long, device="meta")


def meta(*shape):
    return torch.empty(*shape, device="meta")


class Apply(nn.Module):
    """Calls a function with itself first, so that a test can write a module in one line."""

    def __init__(self, function, **modules):
        super().__init__()
        self.function = function
        for name, module in modules.items():
            setattr(self, name, module)

    def forward(self, *inputs):
        return self.function(self, *inputs)


# -- models whose FLOP are known in closed form or published


class Bottleneck(nn.Module):
    def __init__(self, channels_in, width, stride):
        super().__init__()
        out = 4 * width
        self.conv1, self.bn1 = nn.Conv2d(channels_in, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = (
            nn.Conv2d(width, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
        )
        self.conv3, self.bn3 = nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out)
        shortcut = nn.Sequential(
            nn.Conv2d(channels_in, out, 1, stride, bias=False), nn.BatchNorm2d(out)
        )
        self.down = shortcut if stride != 1 or channels_in != out else nn.Identity()

    def forward(self, x):
        y = functional.relu(self.bn1(self.conv1(x)))
        y = functional.relu(self.bn2(self.conv2(y)))
        return functional.relu(self.bn3(self.conv3(y)) + self.down(x))


class ResNet50(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True)
        )
        blocks, channels = [], 64
        for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for place in range(count):
                blocks.append(Bottleneck(channels, width, 1 if place else stride))
                channels = 4 * width
        self.layers, self.fc = nn.Sequential(*blocks), nn.Linear(2048, 1000)

    def forward(self, x):
        x = self.layers(functional.max_pool2d(self.stem(x), 3, 2, 1))
        return self.fc(functional.adaptive_avg_pool2d(x, 1).flatten(1))


class EncoderLayer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x):
        q, k, v = (
            p(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for p in (self.query, self.key, self.value)
        )
        y = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = self.norm1(x + self.out(y))
        return self.norm2(x + self.down(functional.gelu(self.up(x))))


class Encoder(nn.Module):
    """BERT without its heads (Devlin 2019)."""

    def __init__(self, layers=24, width=1024, heads=16, vocabulary=30522):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(512, width)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.Sequential(*(EncoderLayer(width, heads) for _ in range(layers)))
        self.pooler = nn.Linear(width, width)

    def forward(self, tokens):
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.layers(self.norm(self.tokens(tokens) + self.positions(positions)))
        return torch.tanh(self.pooler(x[:, 0]))


class DecoderLayer(nn.Module):
    def __init__(self, width, heads, kv_heads, inner):
        super().__init__()
        self.head_dim = width // heads
        self.q, self.o = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k, self.v = (nn.Linear(width, kv_heads * self.head_dim, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, width, bias=False)
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)

    def forward(self, x):
        y = self.norm1(x)
        q, k, v = (
            p(y).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for p in (self.q, self.k, self.v)
        )
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.o(y.transpose(1, 2).flatten(2))
        y = self.norm2(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    """Llama 3 (Dubey 2024, table 3), rotary embedding left out: it has no matrix FLOP."""

    def __init__(self, layers, width, heads, inner, kv_heads=8, vocabulary=128256):
        super().__init__()
        self.embed, self.norm = nn.Embedding(vocabulary, width), nn.RMSNorm(width)
        self.layers = nn.Sequential(
            *(DecoderLayer(width, heads, kv_heads, inner) for _ in range(layers))
        )
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        return self.head(self.norm(self.layers(self.embed(tokens))))


LLAMA = {
    "8b": (32, 4096, 32, 14336),
    "70b": (80, 8192, 64, 28672),
    "405b": (126, 16384, 128, 53248),
}
LLAMA_PARAMETERS = {"8b": 8.03e9, "70b": 70.55e9, "405b": 405.85e9}


class Dlrm(nn.Module):
    """Bottom tower, one embedding bag per sparse feature, pairwise products, top tower (Naumov
    2019).
    """

    def __init__(self, tables=8, rows=1000, width=64):
        super().__init__()
        self.bottom = nn.Sequential(nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, width), nn.ReLU())
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables))
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(nn.Linear(width + pairs, 256), nn.ReLU(), nn.Linear(256, 1))
        self.register_buffer("pair", torch.tril_indices(tables + 1, tables + 1, -1))

    def forward(self, dense, sparse):
        x = self.bottom(dense)
        features = torch.stack(
            [x, *(table(sparse[:, i]) for i, table in enumerate(self.tables))], dim=1
        )
        products = features @ features.transpose(1, 2)
        return self.top(torch.cat([x, products[:, self.pair[0], self.pair[1]]], dim=1))


class Experts(nn.Module):
    """Top-k mixture with the weights of all experts stacked and tokens gathered to a fixed
    capacity.
    """

    def __init__(self, experts=8, width=32, inner=64, top_k=2):
        super().__init__()
        self.top_k, self.router = top_k, nn.Linear(width, experts, bias=False)
        self.up, self.down = (
            nn.Parameter(torch.empty(experts, width, inner)),
            nn.Parameter(torch.empty(experts, inner, width)),
        )

    def forward(self, x):
        weights, chosen = self.router(x).softmax(-1).topk(self.top_k)
        order = chosen.flatten().argsort()
        rows = x.repeat_interleave(self.top_k, 0)[order].view(self.up.shape[0], -1, x.shape[1])
        rows = functional.silu(rows @ self.up) @ self.down
        scaled = rows.flatten(0, 1)[order] * weights.flatten()[:, None]
        return scaled.view(-1, self.top_k, x.shape[1]).sum(1)


def test_mlp_matches_closed_form():
    graph = graph_of(
        nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 10)), torch.randn(32, 784)
    )
    assert graph.model_flop == 2 * 32 * (784 * 512 + 512 * 10)
    assert graph.weight_bytes.sum() == 4 * (784 * 512 + 512 + 512 * 10 + 10)
    assert kinds(graph) == [K.GEMM, K.ELEMENTWISE, K.GEMM]


def test_cnn_matches_closed_form():
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(4096, 10),
    )
    graph = graph_of(net, torch.randn(4, 3, 32, 32))
    assert graph.model_flop == 2 * 4 * (32 * 32 * 16 * 27 + 4096 * 10)
    assert kinds(graph) == [K.CONV, K.ELEMENTWISE, K.POOLING, K.GEMM]


def test_resnet50_matches_published_flop():
    model = capture(ResNet50, meta(1, 3, 224, 224), batch_dimension=None)
    assert model.captured.parameter_count == 25_557_032  # torchvision's model card
    assert model.captured.forward.graph.graph.model_flop == pytest.approx(8.178e9, rel=1e-3)


def test_bert_large_matches_published_flop():
    assert graph_of(Encoder, ids(1, 512)).model_flop == pytest.approx(335.0e9, rel=1e-3)


@pytest.mark.parametrize("size", LLAMA)
def test_llama_matches_closed_form(size):
    layers, width, heads, inner = LLAMA[size]
    model = capture(lambda: Llama(layers, width, heads, inner), ids(1, 2048), batch_dimension=None)
    assert model.captured.parameter_count == pytest.approx(LLAMA_PARAMETERS[size], rel=1e-3)
    matrices = model.captured.parameter_count - 128256 * width
    expected = 2 * matrices * 2048 + 4 * 2048**2 * width * layers
    assert model.captured.forward.graph.graph.model_flop == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(("layers", "bidirectional"), [(1, False), (2, True)])
def test_lstm_matches_closed_form(layers, bidirectional):
    net = nn.LSTM(32, 64, layers, bidirectional=bidirectional, batch_first=True)
    graph = graph_of(net, torch.randn(4, 7, 32))
    ways = 2 if bidirectional else 1
    widths = [32] + [64 * ways] * (layers - 1)
    assert graph.model_flop == sum(2 * ways * 4 * 7 * 4 * 64 * (width + 64) for width in widths)
    assert kinds(graph).count(K.LSTM) == layers


@pytest.mark.parametrize("cell", [nn.LSTM, nn.GRU])
def test_a_recurrent_layer_reads_its_own_first_states(cell):
    layers, batch, steps, inner, hidden = 3, 4, 7, 32, 64
    graph = graph_of(
        cell(inner, hidden, layers, batch_first=True, bidirectional=True),
        torch.randn(batch, steps, inner),
    )
    rows = np.isin(graph.kind, [int(K.LSTM), int(K.GRU)])
    states = 2 * batch * hidden * (2 if cell is nn.LSTM else 1)
    widths = [inner] + [2 * hidden] * (layers - 1)
    assert graph.read_bytes[rows].tolist() == [
        4 * (batch * steps * width + states) for width in widths
    ]


def test_dlrm_matches_closed_form():
    graph = graph_of(Dlrm, (meta(16, 13), ids(16, 8, 5)))
    towers = 13 * 512 + 512 * 64 + (64 + 36) * 256 + 256
    assert graph.model_flop == 2 * 16 * (towers + 9 * 9 * 64)
    assert kinds(graph).count(K.EMBEDDING_BAG) == 8


def test_moe_counts_chosen_experts_only():
    graph = graph_of(Experts, meta(64, 32))
    assert graph.model_flop == 2 * 64 * 32 * 8 + 2 * 64 * 2 * (32 * 64) * 2
    assert kinds(graph).count(K.GROUPED_GEMM) == 2
    assert K.MOE_ROUTING in kinds(graph)


# -- training


def test_backward_is_twice_forward_but_for_the_first_input():
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Linear(8 * 28 * 28, 10)
    )
    graph = graph_of(net, torch.randn(2, 3, 32, 32), training=True)
    forward, first = phase_flop(graph, Phase.FORWARD), graph.flop[0]
    assert phase_flop(graph, Phase.BACKWARD) == 2 * forward - first


def test_training_llama_matches_closed_form():
    layers, width, heads, tokens = 2, 256, 4, 128
    net = Llama(layers, width, heads, 512, kv_heads=2, vocabulary=1000)
    graph = graph_of(net, ids(2, tokens), training=True)
    attention = 4 * 2 * tokens**2 * width * layers
    linear = phase_flop(graph, Phase.FORWARD) - attention
    # Two products per weight backward, five in place of two per attention; nothing flows into the
    # embedding's ids.
    assert phase_flop(graph, Phase.BACKWARD) == pytest.approx(
        2 * linear + 2.5 * attention, rel=1e-3
    )


def test_saved_bytes_follow_autograd():
    graph = graph_of(
        nn.Sequential(nn.Linear(100, 200), nn.ReLU(), nn.Linear(200, 10)),
        torch.randn(32, 100),
        training=True,
    )
    assert graph.saved_bytes.sum() == 4 * 32 * (
        100 + 200
    )  # the input and the ReLU's output; weights are not activations
    inference = graph_of(nn.LSTM(8, 8), torch.randn(3, 2, 8))
    assert inference.saved_bytes.sum() == 0


def test_losses_and_frozen_parameters():
    net = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    net[0].requires_grad_(requires_grad=False)
    model = capture(net, torch.randn(4, 8), training=True, optimizer="lamb")
    assert (model.captured.parameter_count, model.captured.trainable_count) == (144, 72)
    assert model.captured.optimizer == "lamb"
    assert (
        phase_flop(model.captured.training.graph.graph, Phase.BACKWARD) == 2 * 4 * 8 * 8
    )  # one weight gradient only


def test_a_training_capture_holds_the_inference_pass_too():
    net = nn.Sequential(nn.Linear(8, 8), nn.Dropout(), nn.BatchNorm1d(8))
    captured = capture(net, torch.randn(4, 8), training=True).captured
    assert "native_dropout" in captured.training.graph.graph.name
    assert captured.forward.graph.graph.name == ("addmm", "native_batch_norm")
    assert captured.forward.graph.graph.saved_bytes.sum() == 0


def test_sparse_table_gradients_write_only_the_rows_looked_up():
    def scatter_bytes(sparse):
        graph = graph_of(
            lambda: nn.EmbeddingBag(1000, 64, mode="sum", sparse=sparse), ids(8, 5), training=True
        )
        row = kinds(graph).index(K.SCATTER)
        assert graph.dims[row, :3].tolist() == [40, 64, 1000]
        return graph.write_bytes[row]

    assert scatter_bytes(sparse=True) == 4 * 40 * 64
    assert scatter_bytes(sparse=False) == 4 * (40 + 1000) * 64


def test_a_single_number_is_added_at_an_index():
    def add(_, x):
        return torch.zeros(()).scatter_add(0, torch.zeros((), dtype=torch.long), x.sum())

    assert kinds(graph_of(Apply(add), meta(4)))[-1] is K.SCATTER


def test_lists_in_place_write_all_their_tensors():
    def halve(_, x):
        torch._foreach_mul_([x, x * 2, x * 3], 0.5)
        return x

    graph = graph_of(Apply(halve), meta(8))
    assert graph.write_bytes[-1] == graph.read_bytes[-1] == 4 * 3 * 8


@pytest.mark.parametrize(
    "call",
    [
        lambda _, x: functional.rms_norm(input=x, normalized_shape=[8]),
        lambda _, x: functional.dropout(input=x, training=True),
        lambda _, x: functional.linear(input=x, weight=x),
        lambda _, x: functional.scaled_dot_product_attention(query=x, key=x, value=x),
    ],
)
def test_functions_take_their_arguments_by_name(call):
    assert len(graph_of(Apply(call), meta(4, 8))) == 1


def test_checkpointing_recomputes_in_the_backward_pass():
    from torch.utils.checkpoint import checkpoint

    inner = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8))
    graph = graph_of(
        Apply(lambda m, x: checkpoint(m.inner, x, use_reentrant=False), inner=inner),
        torch.randn(4, 8),
        training=True,
    )
    first = second = graph.flop[0]
    # Gradients: two products for the second layer, one for the first; torch recomputes no further
    # than the second's input.
    assert phase_flop(graph, Phase.BACKWARD) == 2 * second + first + first


@pytest.mark.parametrize(
    ("factory", "shape", "forward"),
    [
        (lambda: nn.Conv1d(8, 16, 3, groups=4), (2, 8, 20), 2 * 2 * 18 * 16 * 2 * 3),
        (lambda: nn.Conv2d(8, 8, 3, groups=8, dilation=2), (2, 8, 9, 9), 2 * 2 * 25 * 8 * 9),
    ],
)
def test_grouped_convolutions_match_closed_form(factory, shape, forward):
    """By hand, as torch's own counter leaves the groups out of the weight gradient."""
    graph = graph_of(factory, meta(*shape), training=True)
    assert phase_flop(graph, Phase.FORWARD) == phase_flop(graph, Phase.BACKWARD) == forward


# -- module paths and dependencies

TRAINED = {
    "resnet": (ResNet50, lambda: meta(2, 3, 224, 224)),
    "encoder": (lambda: Encoder(layers=4), lambda: ids(2, 128)),
    "dlrm": (Dlrm, lambda: (meta(16, 13), ids(16, 8, 5))),
    "experts": (lambda: nn.Sequential(*(Experts() for _ in range(4))), lambda: meta(64, 32)),
    "lstm": (lambda: nn.LSTM(8, 8, 2), lambda: meta(5, 4, 8)),
}


@pytest.mark.parametrize("name", TRAINED)
def test_operators_carry_module_paths(name):
    factory, inputs = TRAINED[name]
    module = factory()
    known = {path for path, _ in module.named_modules()} | {type(module).__name__}
    graph = graph_of(module, inputs(), training=True)
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        paths = [
            p
            for p, code in zip(graph.path, graph.phase.tolist(), strict=True)
            if code == int(phase)
        ]
        assert paths
        assert sum(path in known and path != "" for path in paths) >= 0.99 * len(paths)


def test_backward_rows_name_the_layer_they_belong_to():
    net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
    graph = graph_of(net, torch.randn(2, 8), training=True)
    gradients = [
        (p, tuple(d[1:4]))
        for p, d, k in zip(graph.path, graph.dims.tolist(), kinds(graph), strict=True)
        if k is K.GEMM
    ]
    assert gradients == [
        ("0", (2, 16, 8)),
        ("2", (2, 4, 16)),
        ("2", (2, 16, 4)),
        ("2", (4, 16, 2)),
        ("0", (16, 8, 2)),
    ]


def test_dependencies_follow_tensors_not_order():
    net = Apply(lambda m, x: m.a(x) + m.b(x), a=nn.Linear(8, 8), b=nn.Linear(8, 8))
    graph = graph_of(net, torch.randn(2, 8))
    assert [graph.dependencies_of(row).tolist() for row in range(3)] == [[], [], [0, 1]]


def test_in_place_and_views_make_no_false_rows():
    def forward(m, x):
        y = m.a(x).view(4, 2, 4).transpose(1, 2)[:, :2]
        y.relu_()
        return y.reshape(4, 4)

    graph = graph_of(Apply(forward, a=nn.Linear(8, 8)), torch.randn(4, 8))
    assert kinds(graph) == [K.GEMM, K.ELEMENTWISE, K.COPY]
    assert graph.dependencies_of(1).tolist() == [0]


def test_a_linear_layer_adds_its_bias_in_place_where_its_input_does_not_lie_together():
    """As eager execution does; under a dispatch mode torch itself adds out of place."""

    mixed = Apply(lambda m, x: m.mix(x.transpose(1, 2)), mix=nn.Linear(4, 4))
    names = graph_of(mixed, torch.randn(2, 4, 6)).name
    assert any(name.startswith("add") and IN_PLACE in name for name in names)
    assert not any(name.startswith("add") and IN_PLACE not in name for name in names)


def test_views_of_weights_are_weights():
    net = Apply(lambda m, x: x @ m.a.weight[:4].t().reshape(8, 4), a=nn.Linear(8, 8))
    graph = graph_of(net, torch.randn(2, 8))
    gemm = kinds(graph).index(K.GEMM)
    assert graph.weight_bytes.sum() == 4 * 4 * 8
    assert graph.weight_bytes[gemm] == 4 * 4 * 8


# -- attention


def by_hand(q, k, v, mask=None, rate=0.0):
    scores = q @ k.transpose(-2, -1) / 4.0
    scores = scores if mask is None else scores.masked_fill(mask, float("-inf"))
    return functional.dropout(scores.softmax(-1), rate, training=rate > 0) @ v


def with_sink(q, k, v):
    """A learned score per head that takes part in the softmax and is then dropped (gpt-oss)."""
    scores = q @ k.transpose(-2, -1) / 4.0
    scores = torch.cat([scores, q[..., :1]], dim=-1)
    scores = scores - scores.max(dim=-1, keepdim=True).values
    return scores.softmax(-1)[..., :-1] @ v


class Attend(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function, self.projection = function, nn.Linear(64, 192)

    def forward(self, x):
        return self.function(
            *self.projection(x).unflatten(-1, (3, 4, 16)).permute(2, 0, 3, 1, 4)
        ).flatten(2)


FUSED = {
    "sdpa": functional.scaled_dot_product_attention,
    "by hand": by_hand,
    "masked": lambda q, k, v: by_hand(q, k, v, torch.ones(12, 12, device=q.device).triu(1).bool()),
    "dropout": lambda q, k, v: by_hand(q, k, v, rate=0.1),
    "sink": with_sink,
}
WRITTEN_OUT = {"by hand", "masked", "dropout", "sink"}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("form", FUSED)
def test_attention_is_one_operator(form, training):
    graph = graph_of(Attend(FUSED[form]), meta(2, 12, 64), training=training)
    found = kinds(graph)
    if training and form in WRITTEN_OUT:  # which a training step runs as it is written
        assert found.count(K.BATCHED_GEMM) == 6
        return
    assert found.count(K.ATTENTION) == 1
    assert found.count(K.ATTENTION_BACKWARD) == int(training)
    assert not {K.SOFTMAX, K.BATCHED_GEMM} & set(found)
    row = found.index(K.ATTENTION)
    assert graph.dims[row, :7].tolist() == [2, 4, 4, 12, 12, 16, 16]
    assert graph.flop[row] == 4 * 2 * 4 * 12 * 12 * 16


@pytest.mark.parametrize("form", ["sdpa", "by hand"])
def test_written_out_attention_on_request(form):
    apart = graph_of(Attend(FUSED[form]), meta(2, 12, 64), fused_attention=False)
    fused = graph_of(Attend(FUSED[form]), meta(2, 12, 64))
    assert kinds(apart).count(K.BATCHED_GEMM) == 2
    assert apart.model_flop == fused.model_flop
    assert apart.total_bytes > fused.total_bytes


@pytest.mark.parametrize(("form", "count"), [("sdpa", 1), ("by hand", 0)])
@pytest.mark.parametrize("training", [False, True])
def test_only_written_out_attention_stays_apart_unless_merged(form, count, training):
    found = kinds(
        graph_of(Attend(FUSED[form]), meta(2, 12, 64), training=training, merge_attention=False)
    )
    assert found.count(K.ATTENTION) == count
    assert found.count(K.BATCHED_GEMM) == (1 - count) * (2 + 4 * training)


def test_grouped_query_and_causal_are_seen():
    graph = graph_of(lambda: Llama(1, 64, 4, 128, kv_heads=2, vocabulary=10), ids(2, 16))
    row = kinds(graph).index(K.ATTENTION)
    assert graph.dims[row, :8].tolist() == [2, 4, 2, 16, 16, 16, 16, 1]


def test_attention_weights_that_are_wanted_are_written():
    with_weights = graph_of(
        nn.MultiheadAttention(64, 4, batch_first=True), (x := torch.randn(2, 10, 64), x, x)
    )
    row = kinds(with_weights).index(K.ATTENTION)
    assert with_weights.write_bytes[row] == 4 * (2 * 10 * 64 + 2 * 4 * 10 * 10)


# -- known zero-FLOP traps of dispatch counting

ATTENTION_FLOP = 4 * 2 * 4 * 10 * 10 * 16


@pytest.mark.parametrize(
    "call",
    [
        lambda x: torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(x, x, x)[0],
        lambda x: torch.ops.aten._scaled_dot_product_flash_attention(x, x, x, 0.0, True)[0],
        lambda x: torch.ops.aten._scaled_dot_product_efficient_attention(x, x, x, None, True)[0],
        lambda x: torch.ops.aten._scaled_dot_product_cudnn_attention(x, x, x, None, True)[0],
        lambda x: torch.ops.aten._scaled_dot_product_attention_math(x, x, x)[0],
        lambda x: torch.ops.aten.scaled_dot_product_attention(x, x, x),
    ],
    ids=["cpu flash", "flash", "efficient", "cudnn", "math", "composite"],
)
def test_sdpa_kernels_have_flop(call):
    graph = graph_of(Apply(lambda _, x: call(x)), torch.randn(2, 4, 10, 16))
    assert graph.model_flop == ATTENTION_FLOP
    assert kinds(graph).count(K.ATTENTION) == 1


def test_fused_lstm_layer_has_flop():
    w = {"w0": torch.randn(64, 8), "w1": torch.randn(64, 16), "b": torch.randn(64)}
    state = torch.zeros(1, 4, 16)
    net = Apply(
        lambda m, x, h: torch.ops.aten.mkldnn_rnn_layer(
            x, m.w0, m.w1, m.b, m.b, h, h, False, [], 2, 16, 1, True, False, False, False
        )[0],
        **{name: nn.Parameter(value) for name, value in w.items()},
    )
    assert graph_of(net, (torch.randn(5, 4, 8), state)).model_flop == 2 * 5 * 4 * 64 * (8 + 16)


def test_fused_lstm_cell_has_flop():
    net = Apply(
        lambda m, x: torch.ops.aten._thnn_fused_lstm_cell(
            m.a(x), m.b(x), x.new_zeros(4, 16), m.a.bias, m.b.bias
        )[0],
        a=nn.Linear(8, 64),
        b=nn.Linear(8, 64),
    )
    assert graph_of(net, torch.randn(4, 8)).model_flop == 2 * 2 * 4 * 8 * 64


def test_multi_head_attention_has_flop():
    net = nn.MultiheadAttention(64, 4, batch_first=True).eval()
    x = torch.randn(2, 10, 64)
    assert graph_of(net, (x, x, x)).model_flop == 2 * 20 * 64 * 64 * 4 + ATTENTION_FLOP


def test_encoder_layer_has_flop():
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True).eval()
    graph = graph_of(layer, torch.randn(2, 10, 64))
    assert graph.model_flop == 2 * 20 * 64 * (64 * 4 + 2 * 128) + ATTENTION_FLOP


def test_inference_mode_is_seen_through():
    net = Apply(torch.inference_mode()(lambda m, x: functional.gelu(m.a(x))), a=nn.Linear(8, 8))
    assert graph_of(net, torch.randn(4, 8)).model_flop == 2 * 4 * 8 * 8


# -- the caller's module


def test_the_module_is_not_altered():
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout())
    before = {name: value.clone() for name, value in net.state_dict().items()}
    capture(net, torch.randn(8, 4), training=True)
    assert net.training
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
    assert all(p.grad is None and not p.is_meta for p in net.parameters())
    assert functional.dropout is torch.nn.functional.dropout
    assert functional.scaled_dot_product_attention.__name__ == "scaled_dot_product_attention"
    assert torch.equal(net.eval()(torch.ones(2, 4)), net(torch.ones(2, 4)))


def test_random_state_is_not_touched():
    net = nn.Sequential(nn.Linear(4, 4), nn.Dropout())
    state = torch.random.get_rng_state()
    capture(net, meta(8, 4), training=True)
    assert torch.equal(state, torch.random.get_rng_state())


# -- batch

BATCHED = {
    "cnn": (
        lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 5)),
        (3, 8, 8),
    ),
    "encoder": (lambda: nn.Sequential(EncoderLayer(64, 4)), (12, 64)),
    "library": (lambda: nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), (12, 64)),
}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", BATCHED)
@pytest.mark.parametrize("captured_at", [1, 2, 4])
def test_any_batch_equals_a_capture_at_that_batch(name, training, captured_at):
    factory, shape = BATCHED[name]
    model = capture(factory, meta(captured_at, *shape), training=training).captured
    for batch in (2, 6, 32):
        direct = graph_of(factory, meta(batch, *shape), training=training)
        captured = model.training or model.forward
        lowered = captured.lowered(batch, model.precision, model.precision)
        for column in (
            "kind",
            "dims",
            "flop",
            "read_bytes",
            "write_bytes",
            "weight_bytes",
            "saved_bytes",
        ):
            assert np.array_equal(getattr(direct, column), getattr(lowered, column)), column


def test_what_is_not_linear_in_batch_keeps_its_batch():
    from accelsim.errors import InvalidValueError

    model = capture(Apply(lambda m, x: m.a(x) @ m.a(x).t(), a=nn.Linear(8, 8)), torch.randn(4, 8))
    assert model.lower(PassShape(batch=4), model.captured.precision).graph.model_flop > 0
    with pytest.raises(InvalidValueError, match="captured batch"):
        model.lower(PassShape(batch=8), model.captured.precision)


# -- size and time


def test_llama_70b_from_transformers_is_quick_and_small():
    pytest.importorskip("transformers")
    script = ROOT / "benchmarks" / "capture_llama.py"
    result = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=True, timeout=600
    )
    figures = dict(line.split(": ") for line in result.stdout.strip().splitlines())
    assert float(figures["capture_s"]) < 100
    assert float(figures["peak_rss_mb"]) < 600
    assert float(figures["flop_ratio_to_closed_form"]) == pytest.approx(1.0, abs=1e-3)


def test_importing_the_capture_needs_no_torch():
    door = "accelsim.workloads.capture.torch.module"
    code = f"import sys; import {door}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


# -- an independent counter

COUNTED = {
    "resnet": (ResNet50, lambda: meta(2, 3, 64, 64)),
    "dlrm": (Dlrm, lambda: (meta(16, 13), ids(16, 8, 5))),
    "3-D": (
        lambda: nn.Sequential(nn.Conv3d(4, 8, 3, stride=2), nn.Conv3d(8, 4, 2)),
        lambda: meta(2, 4, 9, 9, 9),
    ),
    "transposed": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.ConvTranspose2d(8, 4, 4, 2, 1), nn.ConvTranspose2d(4, 4, 3)
        ),
        lambda: meta(2, 3, 8, 8),
    ),
    "experts": (Experts, lambda: meta(64, 32)),
    "lstm cell": (
        lambda: Apply(lambda m, x: m.cell(x)[0], cell=nn.LSTMCell(8, 16)),
        lambda: meta(4, 8),
    ),
}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", COUNTED)
def test_flop_equal_those_of_torchs_own_counter(name, training):
    from torch.utils.flop_counter import FlopCounterMode

    factory, inputs = COUNTED[name]
    with torch.device("meta"):
        module = factory().train(training)
    arguments = inputs() if isinstance(inputs(), tuple) else (inputs(),)
    with FlopCounterMode(display=False) as counter, torch.set_grad_enabled(training):
        output = module(*arguments)
        if training:
            output.backward(torch.empty_like(output))
    assert graph_of(module, inputs(), training=training).model_flop == counter.get_total_flops()


# -- the catalogue, written from shapes alone


@pytest.mark.parametrize(
    ("name", "module", "inputs", "shape"),
    [
        ("resnet-50", ResNet50, lambda: meta(8, 3, 224, 224), PassShape(batch=8, image_size=224)),
        (
            "llama-3.1-8b",
            lambda: Llama(*LLAMA["8b"]),
            lambda: ids(1, 2048),
            PassShape(batch=1, seq_len=2048),
        ),
    ],
)
def test_capture_and_catalogue_agree(name, module, inputs, shape):
    from accelsim.catalog.workloads import workload
    from accelsim.dtype import PRECISIONS
    from accelsim.workloads.capture.workload import captured_training
    from accelsim.workloads.training import optimizer, training_graph

    precision = PRECISIONS["fp32"]
    written = workload(name).lower(shape, precision)
    counts = (written.parameter_count, written.parameter_tensor_count)
    step = training_graph(written.graph, *counts, precision, optimizer("adamw"))
    model = capture(module, inputs(), training=True, batch_dimension=None)
    size = PassShape(batch=model.default.batch)
    captured, captured_step = (
        model.lower(size, precision),
        captured_training(model, size, precision),
    )
    assert captured.parameter_count == written.parameter_count
    assert captured.graph.model_flop == written.graph.model_flop
    assert captured_step.model_flop == step.model_flop
    turned = [row == "rope" for row in written.graph.name]  # which the module leaves out
    expected = written.graph.total_bytes - written.graph.bytes[turned].sum()
    assert captured.graph.total_bytes == pytest.approx(expected, rel=0.01)
    assert captured_step.saved_bytes.sum() == pytest.approx(
        written.graph.saved_bytes.sum(), rel=0.06
    )

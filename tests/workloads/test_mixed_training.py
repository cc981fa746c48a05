"""Training of transformers: dropout, automatic mixed precision and what the backward pass keeps,
against torch.
"""

import math

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from accelsim import catalog, estimate, simulate
from accelsim.dtype import Dtype, precision
from accelsim.estimation.passes import run_passes
from accelsim.estimation.resolution import resolve
from accelsim.workloads.backward import backward_graph
from accelsim.workloads.builder import GraphBuilder
from accelsim.workloads.families.encoder import EncoderParameters, write_encoder
from accelsim.workloads.model import PassShape
from accelsim.workloads.operator import OperatorKind
from accelsim.workloads.row_writer import PassForm
from accelsim.workloads.training import word_loss_graphs

BATCH, LENGTH, WIDTH, HEADS, INNER, VOCABULARY, LAYERS = 3, 32, 64, 4, 256, 128, 2
K = OperatorKind


class Bert(nn.Module):
    """BERT's encoder in eager PyTorch (Devlin et al. 2019) under the casts of `torch.autocast`:
    products in `narrow`, norms and softmax in FP32 ("CUDA Ops that can autocast").
    """

    def __init__(self, narrow: torch.dtype) -> None:
        super().__init__()
        self.narrow = narrow
        self.tables = nn.ModuleList([nn.Embedding(n, WIDTH) for n in (VOCABULARY, 2, 512)])
        self.norm = nn.LayerNorm(WIDTH)
        widths = [(WIDTH, WIDTH)] * 4 + [(WIDTH, INNER), (INNER, WIDTH)]
        self.linears = nn.ModuleList([nn.Linear(*pair) for _ in range(LAYERS) for pair in widths])
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH) for _ in range(2 * LAYERS)])

    def linear(self, layer: int, x: torch.Tensor) -> torch.Tensor:
        module = self.linears[layer]
        weight = module.weight.detach().to(self.narrow).requires_grad_()
        bias = module.bias.detach().to(self.narrow).requires_grad_()
        self.weights += [weight, bias]
        return nn.functional.linear(x.to(self.narrow), weight, bias)

    def drop(self, x: torch.Tensor) -> torch.Tensor:
        return torch.native_dropout(x, 0.1, True)[0]

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        self.weights: list[torch.Tensor] = []
        types, places = torch.zeros_like(ids), torch.arange(LENGTH)[None]
        words, kinds, positions = (
            table(index) for table, index in zip(self.tables, (ids, types, places), strict=True)
        )
        embedded = (words + kinds + positions).to(self.narrow)
        x = self.drop(self.norm(embedded.float()))
        for layer in range(LAYERS):
            x = self.layer(layer, x)
        return x

    def layer(self, number: int, x: torch.Tensor) -> torch.Tensor:
        first = 6 * number
        q, k, v = (
            self.linear(first + i, x).view(BATCH, LENGTH, HEADS, -1).transpose(1, 2)
            for i in range(3)
        )
        scores = q @ k.transpose(-1, -2) / math.sqrt(WIDTH / HEADS)
        scores = scores + torch.zeros(BATCH, 1, 1, LENGTH, dtype=self.narrow)
        weights = self.drop(scores.softmax(-1, dtype=torch.float32)).to(self.narrow)
        context = (weights @ v).transpose(1, 2).reshape(BATCH, LENGTH, WIDTH)
        x = self.norms[2 * number]((x + self.drop(self.linear(first + 3, context))).float())
        inner = nn.functional.gelu(self.linear(first + 4, x))
        y = self.drop(self.linear(first + 5, inner))
        return self.norms[2 * number + 1]((x + y).float())


def kept_bytes(narrow: torch.dtype) -> int:
    """Bytes of distinct storages that autograd keeps, weights apart."""
    torch.manual_seed(0)
    model, kept = Bert(narrow), {}

    def pack(x: torch.Tensor) -> torch.Tensor:
        kept[x.untyped_storage().data_ptr()] = x  # alive, so that no address comes twice
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        out = model(torch.randint(0, VOCABULARY, (BATCH, LENGTH)))
    assert out.requires_grad
    weights = [*model.parameters(), *model.weights]
    addresses = {w.untyped_storage().data_ptr() for w in weights}
    return sum(
        x.untyped_storage().nbytes() for address, x in kept.items() if address not in addresses
    )


def written(name: str, *, is_training: bool = True) -> GraphBuilder:
    builder = GraphBuilder(
        precision(name), form=PassForm(fused_attention=False, is_training=is_training)
    )
    parameters = EncoderParameters(
        hidden_size=WIDTH,
        layers=LAYERS,
        heads=HEADS,
        intermediate_size=INNER,
        vocab_size=VOCABULARY,
        head="none",
    )
    write_encoder(builder, parameters, PassShape(batch=BATCH, seq_len=LENGTH))
    return builder


@pytest.mark.parametrize(("name", "narrow"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
def test_as_much_is_kept_as_torch_keeps(name, narrow):
    assert written(name).build().saved_bytes.sum() == pytest.approx(kept_bytes(narrow), rel=0.02)


def test_inference_has_neither_dropout_nor_casts():
    plain = written("bf16", is_training=False).build()
    assert not {"dropout", "cast"} & set(plain.name)
    assert {Dtype(code) for code in plain.dtype.tolist()} == {Dtype.BF16}


def test_norms_and_softmax_run_in_fp32_between_products_of_16_bits():
    graph = written("bf16").build()
    formats = {
        kind: {Dtype(code) for code in graph.dtype[graph.kind == int(kind)].tolist()}
        for kind in (K.LAYER_NORM, K.SOFTMAX, K.GEMM, K.BATCHED_GEMM)
    }
    assert formats == {
        K.LAYER_NORM: {Dtype.FP32},
        K.SOFTMAX: {Dtype.FP32},
        K.GEMM: {Dtype.BF16},
        K.BATCHED_GEMM: {Dtype.BF16},
    }
    # three projections and the feed-forward each cast their own input, the product with the values
    # the dropped probabilities; sums come to their norms in FP32, but for the embeddings'
    assert graph.name.count("cast") == LAYERS * (3 + 1 + 1) + 1


def test_the_gradient_of_dropout_reads_the_gradient_and_the_mask():
    forward = written("fp32").build()
    backward = backward_graph(forward)
    rows = [row for row, name in enumerate(backward.name) if name == "dropout.grad"]
    elements = BATCH * LENGTH * WIDTH
    assert min(backward.read_bytes[rows]) == 5 * elements
    assert min(backward.write_bytes[rows]) == 4 * elements
    assert len(rows) == forward.name.count("dropout") == 3 * LAYERS + 1


@pytest.mark.parametrize(
    ("model", "device", "name", "batch", "samples_per_s"),
    [
        # Lambda, deep-learning GPU benchmarks (PyTorch NGC, SQuAD at 384 tokens), one GPU; the
        # batches were chosen to fill the boards, and nothing was fitted to them
        ("bert-base", "v100-sxm2-16gb", "fp16", 48, 189.0),
        ("bert-large", "v100-sxm2-16gb", "fp16", 16, 57.0),
        ("bert-base", "rtx-3090", "fp16", 96, 172.0),
        ("bert-large", "rtx-3090", "fp16", 28, 52.0),
        ("bert-base", "a10", "fp16", 80, 135.0),
        ("bert-large", "a10", "fp16", 28, 42.0),
        ("bert-base", "a100-pcie-40gb", "fp16", 160, 368.0),
        ("bert-large", "a100-pcie-40gb", "fp16", 48, 117.0),
        ("bert-base", "rtx-a6000", "fp16", 192, 198.0),
        ("bert-large", "rtx-a6000", "fp16", 64, 68.0),
        pytest.param(
            *("bert-base", "v100-sxm2-16gb", "fp32", 24, 42.0),
            marks=pytest.mark.xfail(strict=True, reason="71 % of the board: 32 would fit, too"),
        ),
        ("bert-large", "rtx-3090", "tf32", 16, 24.0),
    ],
)
def test_published_trainings_fill_their_boards(model, device, name, batch, samples_per_s):
    found = estimate(
        model,
        device,
        mode="training",
        precision=name,
        batch=batch,
        seq_len=384,
        optimizer="adam",
        fused_attention=False,
    )
    assert found.fits
    assert found.memory_bytes > 0.72 * catalog.device(device).memory.capacity_bytes.value
    assert found.throughput_per_s == pytest.approx(samples_per_s, rel=0.12)


def test_a_training_step_is_longer_with_dropout():
    step = simulate("bert-base", "v100-sxm2-16gb", mode="training", batch=8, seq_len=128)
    assert "dropout" in step.passes[0].graph.name


class Moved(TorchDispatchMode):
    """Bytes that operators on whole rows of scores read and write; a pick touches one a row."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[float, float]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor) and out.dim() == 2 and "detach" not in str(func):
            picks = "nll_loss" in str(func)
            read = [x for x in args if isinstance(x, torch.Tensor) and x.dim() == 2]
            self.found.append((0 if picks else sum(x.nbytes for x in read), out.nbytes))
        return out


@pytest.mark.parametrize(("policy", "narrow"), [("bf16", torch.bfloat16), ("fp32", torch.float32)])
def test_the_loss_over_a_vocabulary_moves_what_torch_moves(policy, narrow):
    b = GraphBuilder(precision(policy))
    b.linear(b.input(BATCH, LENGTH, WIDTH), VOCABULARY, bias=False)
    (loss,) = word_loss_graphs([b.build()], precision(policy))
    scores = torch.randn(BATCH * LENGTH, VOCABULARY, dtype=narrow, requires_grad=True)
    meant = torch.randint(VOCABULARY, (BATCH * LENGTH,))
    with Moved() as moved:
        nn.functional.cross_entropy(scores.float(), meant).backward()
    assert list(zip(loss.read_bytes, loss.write_bytes, strict=True)) == moved.found


@pytest.mark.parametrize("model", ["gpt2", "t5-small", "bert-base", "resnet-50"])
def test_only_training_over_a_vocabulary_has_one_loss(model):
    words = {"gpt2": 50257, "t5-small": 32128}.get(model)
    for mode in ("inference", "training"):
        (one,) = run_passes(resolve(model, "t4", mode=mode, output_len=0)).passes
        rows = [row for row, name in enumerate(one.graph.name) if name == "loss.log_softmax"]
        has_loss = mode == "training" and words is not None
        assert len(rows) == int(has_loss)
        assert all(one.graph.dims[row, 1] == words for row in rows)

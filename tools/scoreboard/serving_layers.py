"""Suite `serving-layers`: times of layers and of attention that serving simulators measured.

Llama-3.1-8B on a TPU v6e (layers over tokens, attention over chunks and cached tokens) and its
attention on an RTX A6000 (FlashAttention), from LLMServingSim's profiles; Llama-2-70B and
BLOOM-176B as vLLM of 2023 ran them on a DGX A100 (Patel et al., Splitwise, ISCA 2024): time of a
prompt and of a token, its kernels launched one by one from Python. XLA merges layers and moves
weights ahead, so that the time of a layer of the TPU is read as that of all of its parts together.
Times in which weights or keys cannot be read from memory are refused by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any

import numpy as np

from accelsim import catalog
from accelsim.catalog.stacks import default_stack
from accelsim.cost.registry import operator_costs
from accelsim.cost.roofline import main_memory_bandwidth_bytes_per_s
from accelsim.cost.table import Execution
from accelsim.dtype import Dtype
from accelsim.estimation.options import RunOptions
from accelsim.frozen import frozen
from accelsim.hardware.profile import DeviceProfile
from accelsim.plain import Values
from accelsim.scoreboard.columns import roofline_s
from accelsim.scoreboard.data_folder import DataFolder, Table, schema
from accelsim.scoreboard.measured_runs import MeasuredRun, run_batches
from accelsim.scoreboard.names import device_of, workload_of
from accelsim.scoreboard.suite import MeasuredBatch, Prediction, refused_batch, register_suite
from accelsim.serving.options import ServingOptions
from accelsim.serving.plan import ReplicaPlan, replica_plan
from accelsim.workloads.graph import FloatArray, OperatorGraph, TextArray, concatenate
from accelsim.workloads.model import Workload
from accelsim.workloads.options import ModelOptions
from tools.scoreboard.gpu_operators import labels
from tools.scoreboard.operator_columns import attention_graph, gemm_graph, vector_graph
from tools.scoreboard.training_plans import decoder, gpt_parameters

SPLITWISE = schema("serving/splitwise_a100.csv")
TPU_LAYERS = schema("serving/tpu_v6e_layers.csv.gz")
TPU_ATTENTION = schema("serving/tpu_v6e_attention.csv.gz")
A6000 = schema("serving/a6000_attention.csv.gz")
#: Products of a decoder layer of Llama-3.1-8B (width and contraction), and of its logits.
_LAYER = ((6144, 4096), (4096, 4096), (2 * 14_336, 4096), (4096, 14_336))
_LOGITS = ((128_256, 4096),)
_WIDTH, _HEADS, _CACHE_HEADS, _HEAD_DIM = 4096, 32, 8, 128
_TPU = "tpu-v6e"
_NAMES = {"True": "prefill attention", "False": "decode attention"}
_OUTSIDE = ("embedding", "final_layernorm", "lm_head")
_NOT_ASKED = "merged with its neighbours by the compiler: no time of its own"
_TOO_FAST = "less time than the weights take to read at the data sheet's bandwidth"
#: Queries of the least chunk of the A6000's table. Its tokens ran the kernel of prompts, which does
#: not slice the keys: a key takes 46 ns of 1 query, 48 of 32 and of 128.
_PROMPT_KERNEL = 32.0
_SHARED_CACHE = (
    "sequences share one cache: keys are read at several times the data sheet's bandwidth"
)


@register_suite(
    "serving-layers",
    "layers, attention, prompts and tokens as serving simulators measured them",
    (),
    "operator",
    optional_files=(SPLITWISE, TPU_LAYERS, TPU_ATTENTION, A6000),
    has_best_alone=True,
)
def load(folder: DataFolder) -> list[MeasuredBatch]:
    """The tables there are."""
    batches: list[MeasuredBatch] = []
    for described, read in (
        (TPU_LAYERS, _layer_batches),
        (TPU_ATTENTION, _tpu_attention),
        (A6000, _a6000),
        (SPLITWISE, _splitwise),
    ):
        table = folder.filled(described)
        if table is not None:
            batches += read(table)
    return batches


@frozen
class _Stages:
    """Rows whose operators run one after the other: all first ones, all second ones, and so on;
    by the device's usual stack.
    """

    graph: OperatorGraph
    profile: DeviceProfile
    stages: int

    def __call__(self, parameters: Any | None) -> Prediction:
        costs = operator_costs(self.graph, self.profile, Execution.COMPILED, parameters)
        seconds = self._sum(costs.time_s)
        sigma = np.broadcast_to(costs.log_sigma, (len(self.graph),))
        spreads = default_stack(self.profile).log_sigmas(self.profile.device_class, "inference")
        own = self._sum(sigma * costs.time_s) / seconds
        return Prediction(seconds, np.hypot(own, spreads["whole"]))

    def _sum(self, values: FloatArray) -> FloatArray:
        total: FloatArray = values.reshape(self.stages, -1).sum(axis=0)
        return total

    @property
    def roofline_s(self) -> FloatArray:
        """Sum of the operators' rooflines."""
        return self._sum(roofline_s(self.graph, self.profile))


def _batch(
    device: str,
    group: TextArray,
    shape: TextArray,
    time_s: FloatArray,
    graph: OperatorGraph,
    stages: int = 1,
) -> MeasuredBatch:
    """Rows of one operator, or of one after the other."""
    predict = _Stages(graph, device_of(device), stages)
    line = predict.roofline_s
    return MeasuredBatch(device, predict.profile, group, shape, time_s, line, predict)


def _layer_batches(table: Table) -> Iterator[MeasuredBatch]:
    """A decoder layer of the TPU without its attention, and the logits; times in ns."""
    profile = device_of(_TPU)
    bandwidth = main_memory_bandwidth_bytes_per_s(profile)
    outside = np.isin(table["layer_name"], _OUTSIDE)
    tokens, place = np.unique(table["input"][~outside], return_inverse=True)
    layer_ns = np.bincount(place, table["latency(ns)"][~outside]).astype(np.float64)
    logits = table.take(table["layer_name"] == "lm_head")
    parts = (
        ("decoder layer", _LAYER, tokens, layer_ns * 1e-9),
        ("logits", _LOGITS, logits["input"], logits["latency(ns)"] * 1e-9),
    )
    for name, products, count, time_s in parts:
        read_s = sum(2.0 * wide * deep for wide, deep in products) / bandwidth
        shape, group = labels(np.full(len(count), name), count), np.full(len(count), name)
        is_fast = time_s < read_s
        if is_fast.any():
            names, shapes = group[is_fast], shape[is_fast]
            yield refused_batch(_TPU, names, shapes, time_s[is_fast], _TOO_FAST, profile)
        kept = ~is_fast
        graph, stages = _products(products, count[kept])
        yield _batch(_TPU, group[kept], shape[kept], time_s[kept], graph, stages)
    rest = table.take(np.isin(table["layer_name"], ("embedding", "final_layernorm")))
    name = rest["layer_name"].astype(str)
    time_s = rest["latency(ns)"] * 1e-9
    yield refused_batch(_TPU, name, labels(name, rest["input"]), time_s, _NOT_ASKED, profile)


def _products(sizes: Sequence[tuple[int, int]], tokens: FloatArray) -> tuple[OperatorGraph, int]:
    """Products with weights and, of a layer, its two norms; a row of each per token count."""
    ones, plain = np.ones(len(tokens)), np.zeros(len(tokens), dtype=bool)
    graphs = [
        gemm_graph(
            ones, tokens, wide * ones, deep * ones, Dtype.BF16, batched=plain, weight=Dtype.BF16
        )
        for wide, deep in sizes
    ]
    if len(sizes) > 1:
        norm = vector_graph(np.full(len(tokens), "ln"), tokens, _WIDTH * ones, Dtype.BF16)
        graphs += [norm, norm]
    return concatenate(graphs), len(graphs)


def _tpu_attention(table: Table) -> Iterator[MeasuredBatch]:
    yield from _attention(_TPU, table, {"True": "mean_ns", "False": "mean_ns"}, 1e-9)


def _a6000(table: Table) -> Iterator[MeasuredBatch]:
    times = "time_stats.attn_{}.median".format
    shares = (table["is_prefill"] == "False") & (table["batch_size"] > 1)
    rows = table.take(shares)
    name = np.full(len(rows), _NAMES["False"])
    time_s = rows[times("decode")] * 1e-3
    shape = labels(name, rows["batch_size"], rows["kv_cache_size"])
    yield refused_batch("a6000", name, shape, time_s, _SHARED_CACHE, device_of("a6000"))
    columns = {"True": times("prefill"), "False": times("decode")}
    yield from _attention("a6000", table.take(~shares), columns, 1e-3, _PROMPT_KERNEL)


def _attention(
    device: str, table: Table, columns: Mapping[str, str], unit_s: float, least_query: float = 1.0
) -> Iterator[MeasuredBatch]:
    """Attention of prompts' chunks and of single tokens, which a kernel fills up to its least
    queries.
    """
    for is_prefill, column in columns.items():
        is_own = (table["is_prefill"] == is_prefill) & np.isfinite(table[column])
        rows = table.take(is_own)
        if not len(rows):
            continue
        ones, name = np.ones(len(rows)), np.full(len(rows), _NAMES[is_prefill])
        query = rows["prefill_chunk_size"] if is_prefill == "True" else least_query * ones
        graph = attention_graph(
            rows["batch_size"],
            (_HEADS * ones, _CACHE_HEADS * ones),
            (query, np.where(is_prefill == "True", query, 1.0) + rows["kv_cache_size"]),
            _HEAD_DIM * ones,
            np.zeros(len(rows)),
            Dtype.BF16,
            Dtype.BF16,
        )
        shape = labels(name, rows["batch_size"], query, rows["kv_cache_size"])
        yield _batch(device, name, shape, rows[column] * unit_s, graph)


def _splitwise(table: Table) -> Iterable[MeasuredBatch]:
    """Prompts and tokens of whole models; times in ms."""
    return run_batches(
        _whole(record, quantity)
        for record in table.records()
        for quantity in ("prompt_time", "token_time")
    )


def _whole(cells: Values, quantity: str) -> MeasuredRun:
    device, model = cells["hardware"], cells["model"]
    sizes = ("tensor_parallel", "batch_size", "prompt_size", "token_size")
    tp, batch, prompt, tokens = (int(cells[name]) for name in sizes)

    def figure(row: MeasuredRun) -> MeasuredRun:
        steps = _plan(model, tp, device_of(device).name).steps
        if quantity == "token_time":
            seconds, _ = steps.decode_run(batch, batch * (prompt + 0.5 * tokens), 1)
        else:
            every = batch * prompt
            seconds, _ = steps.step(every, 0.5 * every * (prompt + 1), 0, 0.0)
        return replace(row, predicted_s=seconds, log_sigma=steps.log_sigma)

    group, label = f"{model} {quantity.replace('_', ' ')}", f"{batch} x {prompt}+{tokens}"
    measured_s = cells[quantity] * 1e-3
    return MeasuredRun(device, group, f"{model}, tp {tp}, {label}", measured_s).answered(figure)


@lru_cache(maxsize=16)
def _plan(model: str, tp: int, device: str) -> ReplicaPlan:
    workload = _bloom() if model == "bloom-176b" else workload_of(model)
    run = RunOptions(model=ModelOptions(precision="fp16", stack="pytorch", execution="eager"))
    options = ServingOptions(
        engine="vllm@0.6", tp=tp, max_seqs=64, max_batch_tokens=16_384, memory_fraction=1.0
    )
    return replica_plan(workload, catalog.device(device), run, options, max_context=16_384)


@cache
def _bloom() -> Workload:
    """BLOOM-176B: ALiBi, biases, four times as wide inside (arXiv:2211.05100, table 3)."""
    parameters = gpt_parameters(250_880, 14_336, 70, 112, 16_384)
    return decoder("bloom-176b", parameters, 2048)

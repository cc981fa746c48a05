"""Kernel tables: graphs of their rows, and the reader on a small table of the package's layout."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from accelsim.catalog.workloads import workload
from accelsim.cost.gpu import GpuParameters, cost_gpu
from accelsim.cost.gpu.surface import surface_rows
from accelsim.cost.table import Execution, Rows
from accelsim.dtype import Dtype, precision
from accelsim.errors import (
    InvalidValueError,
    MissingDependencyError,
    ProfileError,
    UnknownNameError,
)
from accelsim.scoreboard.data_folder import DataFolder
from accelsim.scoreboard.names import gpu_of
from accelsim.workloads.model import PassShape
from accelsim.workloads.operator import OperatorKind, Phase
from tools.scoreboard import aiconfigurator_kernels, aiconfigurator_rows
from tools.scoreboard.aiconfigurator_graphs import kernel_graphs
from tools.scoreboard.aiconfigurator_rows import (
    FORMATS,
    KINDS,
    KernelRows,
    format_names,
    preferred_rows,
    read_kernels,
    versions,
)


def rows(kind: str, sizes: dict, formats: dict, words: dict | None = None) -> KernelRows:
    columns = {
        name: np.atleast_1d(np.asarray(values, dtype=float)) for name, values in sizes.items()
    }
    count = len(next(iter(columns.values())))
    return KernelRows(
        "h200_sxm",
        "vllm",
        "1",
        kind,
        columns,
        {name: np.full(count, word) for name, word in formats.items()},
        {name: np.full(count, word) for name, word in (words or {}).items()},
        np.ones(count),
        np.zeros(count, dtype=bool),
    )


def test_weight_only_formats_move_narrow_weights_and_multiply_wide():
    sizes = {"m": 16, "n": 4096, "k": 8192}
    (plain,) = kernel_graphs(rows("gemm", sizes, {"gemm_dtype": "bfloat16"}))
    (narrow,) = kernel_graphs(rows("gemm", sizes, {"gemm_dtype": "int4_wo"}))
    assert narrow.graph.weight_bytes[0] * 4 == plain.graph.weight_bytes[0] == 2 * 4096 * 8192
    assert narrow.graph.dtype[0] == plain.graph.dtype[0] == Dtype.BF16


def test_decoding_reads_the_cache_once_per_key_value_head():
    sizes = {
        "batch_size": 4,
        "isl": 1,
        "num_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "window_size": 0,
        "step": 1023,
    }
    (graph,) = kernel_graphs(
        rows("generation_attention", sizes, {"attn_dtype": "bfloat16", "kv_cache_dtype": "fp8"})
    )
    cache = 2 * 4 * 8 * 1024 * 128
    query = 2 * 4 * 32 * 128
    assert graph.graph.read_bytes[0] == cache + query
    assert graph.format_name == "bfloat16 cache fp8"


def mla(kind: str, cache: str = "bfloat16", **sizes):
    formats = {"mla_dtype": "bfloat16", "kv_cache_dtype": cache}
    (graph,) = kernel_graphs(
        rows(kind, {"batch_size": 4, "isl": 1, "num_heads": 16, "step": 0} | sizes, formats)
    )
    return graph.graph


def test_latent_decoding_reads_one_row_per_token_for_all_heads():
    cache = 4 * 1024 * 576
    query = 2 * 4 * 16 * 576
    assert mla("generation_mla", step=1023).read_bytes[0] == 2 * cache + query
    assert mla("generation_mla", "fp8", step=1023).read_bytes[0] == cache + query
    assert mla("generation_mla", step=1023).flop[0] == 2 * 4 * 16 * 1024 * (576 + 512)


@pytest.mark.parametrize(
    ("kind", "sizes", "shape", "phase"),
    [
        ("context_mla", {"isl": 64}, PassShape(batch=4, seq_len=64), Phase.PREFILL),
        (
            "generation_mla",
            {"step": 63},
            PassShape(batch=4, seq_len=1, context_len=63),
            Phase.DECODE,
        ),
    ],
)
def test_latent_attention_is_named_as_a_models_is(kind, sizes, shape, phase):
    model = workload("deepseek-v3").lower(shape, precision("bf16"), phase).graph
    found = []
    for graph in (mla(kind, num_heads=128, **sizes), model):
        index = np.flatnonzero(graph.kind == OperatorKind.ATTENTION)
        found.append(
            (
                list(surface_rows(Rows(graph, index, OperatorKind.ATTENTION))),
                graph.dims[index[0]].tolist(),
            )
        )
    assert found[0] == found[1]
    assert found[0][0][0].endswith(" bf16 cache16 latent")


def moe(tokens, distribution="balanced", **changes):
    sizes = {
        "num_tokens": tokens,
        "hidden_size": 2048,
        "inter_size": 1024,
        "topk": 2,
        "num_experts": 8,
    }
    sizes |= {"moe_tp_size": 1, "moe_ep_size": 1} | changes
    words = {"distribution": distribution, "kernel_source": "triton"}
    (graph,) = kernel_graphs(rows("moe", sizes, {"moe_dtype": "bfloat16"}, words))
    return graph


def test_an_expert_layer_has_two_grouped_gemms_over_the_routed_rows():
    layer = moe(64)
    flop = layer.sum_stages(
        np.where(layer.graph.kind == layer.graph.kind[0], layer.graph.flop, 0.0)
    )
    assert flop[0] == 64 * 2 * (2 * 2048 * 2 * 1024 + 2 * 2048 * 1024)
    assert (
        layer.stages == 4
    )  # with the activation between them and the sum of each token's experts after them
    assert moe(64, moe_tp_size=2).graph.flop[0] * 2 == layer.graph.flop[0]
    assert moe(64, moe_ep_size=4).graph.flop[0] * 4 == layer.graph.flop[0]


def test_few_tokens_reach_few_experts():
    assert moe(1).graph.weight_bytes[0] * 4 == moe(64).graph.weight_bytes[0]
    read = [moe(tokens, "power_law_1.2").graph.weight_bytes[0] for tokens in (1, 4, 16, 256)]
    assert read == sorted(read)
    assert read[-1] <= moe(256).graph.weight_bytes[0]


def test_unknown_formats_are_refused():
    with pytest.raises(InvalidValueError, match="gemm_dtype"):
        kernel_graphs(rows("gemm", {"m": 1, "n": 1, "k": 1}, {"gemm_dtype": "posit8"}))
    assert FORMATS["nvfp4"].compute is Dtype.FP4


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A folder with the layout of the package's systems."""
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow as pa

    def write(columns: dict, *, backend="sglang", version="1.0", system="h200_sxm"):
        path = tmp_path / "data" / system / "gemm" / backend / version
        path.mkdir(parents=True, exist_ok=True)
        parquet.write_table(pa.table(columns), path / "gemm_perf.parquet")

    monkeypatch.setattr(aiconfigurator_rows, "package_root", lambda: tmp_path)
    monkeypatch.setattr(aiconfigurator_kernels, "package_root", lambda: tmp_path)
    return write


GEMM = {
    "gemm_dtype": ["bfloat16"] * 3,
    "m": [1, 1, 2],
    "n": [8, 8, 8],
    "k": [8, 8, 8],
    "latency": [0.5, 0.25, 1.0],
}


def test_the_fastest_kernel_of_a_shape_is_kept_in_seconds(package):
    package(GEMM)
    found = read_kernels("h200_sxm", "sglang", None, "gemm")
    assert found.time_s.tolist() == [2.5e-4, 1e-3]
    assert found.sizes["m"].tolist() == [1, 2]
    assert format_names(found).tolist() == ["bfloat16", "bfloat16"]


def test_a_format_comes_from_the_first_backend_that_has_it(package):
    package(GEMM, backend="trtllm")
    package(GEMM | {"gemm_dtype": ["bfloat16", "fp8", "fp8"]}, backend="vllm")
    found = preferred_rows("h200_sxm", "gemm")
    assert [(part.backend, sorted(set(format_names(part)))) for part in found] == [
        ("trtllm", ["bfloat16"]),
        ("vllm", ["fp8"]),
    ]


@pytest.mark.parametrize(
    ("system", "times_s"), [("b60", [2.5e-4, 0.5e-3]), ("h200_sxm", [2.5e-4, 1e-3])]
)
def test_operators_issued_one_by_one_count_at_their_fastest_in_any_version(
    package, system, times_s
):
    """The older version is faster at (2, 8, 8), slower at (1, 8, 8), and alone has (4, 8, 8);
    graphs have no such delays.
    """
    package(GEMM, system=system, backend="vllm", version="2.0")
    older = {"m": [1, 2, 4], "latency": [0.75, 0.5, 0.1]}
    package(GEMM | older, system=system, backend="vllm", version="1.0")
    (found,) = preferred_rows(system, "gemm")
    assert (found.version, found.sizes["m"].tolist()) == ("2.0", [1, 2])
    assert found.time_s.tolist() == times_s


def test_a_table_without_its_columns_and_unknown_versions_are_refused(package):
    package({"m": [1]})
    with pytest.raises(ProfileError, match="column n is missing"):
        read_kernels("h200_sxm", "sglang", None, "gemm")
    with pytest.raises(UnknownNameError, match="version"):
        read_kernels("h200_sxm", "sglang", "9.9", "gemm")
    with pytest.raises(UnknownNameError, match="system"):
        versions("h900", "gemm", "sglang")


def test_without_the_package_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(aiconfigurator_rows, "find_spec", lambda _name: None)
    with pytest.raises(MissingDependencyError, match="silicon"):
        aiconfigurator_rows.package_root()


def test_every_kind_of_the_installed_package_is_read():
    pytest.importorskip("aiconfigurator_core")
    for kind in KINDS:
        (first, *_) = preferred_rows("a100_sxm", kind)
        assert first.held_out.mean() == pytest.approx(0.2, abs=0.05)
        assert bool(np.all(first.time_s > 0))
        for graph in kernel_graphs(first.take(np.arange(min(len(first), 50)))):
            assert len(graph.graph) == graph.stages * len(graph.rows)


def test_a_gemm_loop_goes_through_as_many_copies_as_fill_the_cache():
    sizes = {"m": [1, 1, 1], "n": [1024, 8192, 65536], "k": [1024, 8192, 16384]}
    (gemm,) = kernel_graphs(rows("gemm", sizes, {"gemm_dtype": "bfloat16"}))
    board = gpu_of("h200_sxm")
    turn = gemm.measured(GpuParameters.class_wide(), board).conditions.cycle_bytes
    copies = np.round(turn / gemm.graph.weight_bytes)
    assert copies.tolist() == [5, 1, 1]
    assert np.ceil(board.l2_bytes.value / gemm.graph.weight_bytes)[0] > 5


def test_a_loop_over_skewed_routings_reaches_more_experts_than_one_of_them():
    board, base = gpu_of("l40s"), GpuParameters.class_wide()
    even, skewed = (
        moe(2, word).measured(base, board).conditions.cycle_bytes[0]
        for word in ("balanced", "power_law_1.2")
    )
    assert skewed > 1.5 * even


def test_fp8_gemms_of_one_backend_search_for_the_scale_of_their_input():
    sizes = {"m": [16, 4096], "n": [512, 512], "k": [4096, 4096]}
    table = rows("gemm", sizes, {"gemm_dtype": "fp8"})
    (plain,) = kernel_graphs(replace(table, backend="another"))
    (quantising,) = kernel_graphs(replace(table, backend="vllm"))
    (searching,) = kernel_graphs(replace(table, backend="trtllm"))
    assert (plain.stages, quantising.stages, searching.stages) == (1, 2, 5)
    assert searching.graph.flop[:2].tolist() == plain.graph.flop.tolist()
    moved = searching.sum_stages(searching.graph.bytes) - plain.graph.bytes
    tensor = np.array([16.0, 4096.0]) * 4096
    divided = quantising.sum_stages(quantising.graph.bytes) - plain.graph.bytes
    assert (divided / tensor).tolist() == [3.0, 3.0]  # a read of 2 bytes, a write of 1
    assert (moved / tensor).tolist() == pytest.approx(
        [9.0, 9.0], rel=1e-3
    )  # three reads of 2 bytes, writes of 2 and 1
    turn = searching.measured(GpuParameters.class_wide(), gpu_of("h200_sxm")).conditions.cycle_bytes
    assert len(turn) == 10


def test_a_prefill_is_never_served_from_the_cache():
    sizes = {"batch_size": 1, "isl": 64, "num_heads": 8, "num_key_value_heads": 8, "head_dim": 64}
    formats = {"attn_dtype": "bfloat16", "kv_cache_dtype": "bfloat16"}
    (graph,) = kernel_graphs(
        rows("context_attention", sizes | {"window_size": 0, "step": 0}, formats)
    )
    assert np.isinf(
        graph.measured(GpuParameters.class_wide(), gpu_of("l40s")).conditions.cycle_bytes
    ).all()


def test_the_rows_of_the_whole_batch_are_known_under_expert_parallelism():
    board, base = gpu_of("h200_sxm"), GpuParameters.class_wide()
    layer = moe(64, moe_ep_size=4)
    conditions = layer.measured(base, board).conditions
    assert conditions.batch_rows.tolist() == [
        128.0,
        0.0,
        128.0,
        0.0,
    ]  # two grouped GEMMs, each with what follows it
    assert layer.graph.dimension("m", np.array([0]), layer.graph.kind[0]) == 32.0


def refused(problems):
    return [(problem.file, problem.reason) for problem in problems]


def test_a_damaged_table_is_named_and_the_others_are_still_scored(package, tmp_path):
    package(GEMM, backend="vllm")
    package(GEMM, backend="trtllm")
    damaged = tmp_path / "data" / "h200_sxm" / "gemm" / "trtllm" / "1.0" / "gemm_perf.parquet"
    damaged.write_bytes(damaged.read_bytes()[:40])
    folder = DataFolder(tmp_path)
    batches = aiconfigurator_kernels.load(folder)
    assert refused(folder.problems) == [
        ("data/h200_sxm/gemm/trtllm/1.0/gemm_perf.parquet", "damaged table")
    ]
    assert {name for batch in batches for name in batch.group.tolist()} <= {"gemm bfloat16 (vllm)"}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"latency": [0.5, float("nan"), 1.0]}, "row 2, column latency"),
        ({"latency": [0.5, 0.0, 1.0]}, "row 2, column latency"),
        ({"m": [1, -1, 2]}, "row 2, column m"),
        ({"k": ["8", "x", "8"]}, "column k holds no numbers"),
    ],
)
def test_cells_that_are_no_sizes_or_times_are_named(package, changes, said):
    package(GEMM | changes)
    with pytest.raises(ProfileError, match=said):
        read_kernels("h200_sxm", "sglang", None, "gemm")


def test_kernels_of_an_unknown_system_are_refused_by_name(package, tmp_path):
    package(GEMM)
    other = tmp_path / "data" / "x900" / "gemm" / "vllm" / "1.0"
    other.mkdir(parents=True)
    (other / "gemm_perf.parquet").write_bytes(b"")
    (tmp_path / "data" / "empty").mkdir()
    folder = DataFolder(tmp_path)
    aiconfigurator_kernels.load(folder)
    assert refused(folder.problems) == [("data/x900", "unknown system")]


def test_a_format_nobody_knows_is_a_refusal(package, tmp_path):
    sizes = {name: list(range(1, 101)) for name in ("m", "n", "k")}
    package({"gemm_dtype": ["posit8"] * 100, **sizes, "latency": [0.5] * 100})
    (batch,) = aiconfigurator_kernels.load(DataFolder(tmp_path))
    assert "posit8" in batch.refusal
    assert len(batch) > 0


def test_linear_layers_of_an_eager_board_follow_each_other_and_attention_is_timed_alone():
    board, parameters = gpu_of("b60"), GpuParameters.class_wide()
    dispatch = parameters.other_dispatch
    small = {"m": 1, "n": 64, "k": 64}
    attention = {
        "batch_size": 1,
        "isl": 1,
        "num_heads": 8,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "window_size": 0,
        "step": 15,
    }
    cases = [
        (rows("gemm", small, {"gemm_dtype": "bfloat16"}), 5 / 6),
        (
            rows(
                "generation_attention",
                attention,
                {"attn_dtype": "bfloat16", "kv_cache_dtype": "bfloat16"},
            ),
            0.0,
        ),
    ]
    for table, share in cases:
        (kernels,) = kernel_graphs(replace(table, system="b60"))
        predicted = aiconfigurator_kernels._prediction(kernels, board)(parameters).time_s
        expected = dispatch.contraction_s - share * dispatch.trailing_s
        assert predicted == pytest.approx([expected])


def test_a_gemm_timed_by_a_profiler_lies_between_two_events_and_finds_nothing_in_the_cache():
    board, parameters = gpu_of("a100_sxm"), GpuParameters.class_wide()
    sizes = {"m": 8, "n": 512, "k": 512}
    looped, profiled = (
        kernel_graphs(rows("gemm", sizes, {"gemm_dtype": name}))[0]
        for name in ("bfloat16", "int8_wo")
    )
    assert looped.beside_s(parameters, board) == pytest.approx([0.0])
    assert profiled.beside_s(parameters, board) == pytest.approx(
        [2 * parameters.memory.kernel_latency_s]
    )
    assert np.isinf(profiled.measured(parameters, board).conditions.cycle_bytes).all()
    cold = replace(parameters, conditions=profiled.measured(parameters, board).conditions)
    kernel_s = cost_gpu(profiled.graph, board, Execution.GRAPH, cold).time_s[0]
    predicted = aiconfigurator_kernels._prediction(profiled, board)(parameters).time_s[0]
    assert predicted == pytest.approx(kernel_s + 2 * parameters.memory.kernel_latency_s)


@pytest.mark.parametrize(
    ("system", "name", "loads"),
    [
        ("rtx_pro_6000_server", "fp8_block", 3),
        ("rtx_pro_6000_server", "nvfp4", 0),
        ("b200_sxm", "fp8_block", 0),
    ],
)
def test_inputs_that_64_warps_quantise_row_after_row_wait_for_each_load(system, name, loads):
    board = gpu_of(system)
    table = replace(
        rows("gemm", {"m": 129, "n": 512, "k": 512}, {"gemm_dtype": name}),
        system=system,
        backend="trtllm",
    )
    beside = kernel_graphs(table)[0].beside_s(GpuParameters.class_wide(), board)
    assert beside == pytest.approx([loads * 877 / board.boost_clock_hz.value])

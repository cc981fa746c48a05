"""Suite serving-vidur on a small made-up run whose figures are known."""

from __future__ import annotations

import pytest

from accelsim.scoreboard import validate
from tools.scoreboard.serving_vidur import LAYERS

PARTS = [column.name for column in LAYERS.columns if column.name.endswith("_ms")]
MODEL = "meta-llama/Meta-Llama-3-8B"
# 9 kernels of 1/288 ms in 32 layers: 1 ms of layers a step, whatever its tokens
ROWS = [",".join(["model,num_tokens,num_tensor_parallel_workers", *PARTS])]
ROWS += [",".join([f"{MODEL},{tokens},1", *[str(1 / 288)] * 9]) for tokens in (1, 512)]
GRID = ["batch_size,prefill_chunk_size,kv_cache_size,is_prefill,attn_prefill_ms,attn_decode_ms"]
GRID += [f"1,{chunk},{kv},True,{1 / 32},0" for chunk in (16, 512) for kv in (0, 64)]
GRID += [f"{batch},0,{kv},False,0,{2 / 32}" for batch in (1, 128) for kv in (64, 128)]
# alone: a prompt takes 1 + 1 ms, each of the 9 further tokens 1 + 2 ms
RUN = """request_inter_arrival_delay,\
request_num_prefill_tokens,request_num_decode_tokens,ttft,tpot,e2e
,100,10,0.002,0.0027,0.029
5,200,10,0.002,0.0027,0.029
"""


@pytest.fixture
def score(tmp_path):
    def scored(grid, run=RUN):
        name = "vidur_run_llama3_8b_a100_{}.csv"
        for file, text in {
            "vidur_mlp_a100.csv": "\n".join(ROWS) + "\n",
            name.format("attention_input"): "\n".join(grid) + "\n",
            name.format("conv_qps6.45_512_requests"): run,
        }.items():
            (tmp_path / "serving").mkdir(exist_ok=True)
            (tmp_path / "serving" / file).write_text(text)
        (found,) = validate(["serving-vidur"], tmp_path).suites
        return found

    return scored


def test_requests_alone_take_what_their_kernels_take(score):
    found = score(GRID)
    assert found.figures.rows_answered == 12
    assert found.figures.max_ape_fraction < 1e-9
    assert found.figures.interval_coverage_fraction is None  # nothing says how wide it is
    assert found.figures.interval_width_fraction is None


def test_a_slower_peer_is_an_error(score):
    found = score(GRID, RUN.replace("0.029", "0.058"))
    assert found.figures.max_ape_fraction == pytest.approx(0.5)


def test_a_grid_with_a_hole_is_refused(score):
    found = score(GRID[:-1])
    assert found.figures.rows_answered == 0
    assert sum(found.refused.values()) == 12

"""Step times of a server: read from a file, or seen in the tokens of its benchmark."""

from __future__ import annotations

import json

import numpy as np
import pytest

import accelsim
from accelsim.errors import InvalidValueError, ProfileError
from accelsim.serving.loads.arrivals import Arrivals
from accelsim.serving.options import ServingOptions
from accelsim.serving.steps.fitted_steps import StepColumns, fit_steps
from accelsim.serving.steps.server_run import read_benchmark, read_step_times, step_rows
from tests.calibration.server_bench import benchmark, step_s

GENERATOR = np.random.default_rng(1)
LENGTHS = [(int(p), int(o)) for p, o in GENERATOR.integers((50, 20), (900, 120), (60, 2))]
HEADER = "prefill_tokens,prefill_context_sum,decode_count,decode_context_sum,s,J"


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    path = tmp_path_factory.mktemp("server") / "bench.json"
    path.write_text(json.dumps(benchmark(LENGTHS, 12)), encoding="utf-8")
    return path


def test_a_benchmark_shows_the_steps_of_its_server(bench, tmp_path):
    found = read_benchmark(bench)
    assert found.requests == len(LENGTHS)
    fitted = fit_steps(found.steps)
    for prompt, count, context in ((0, 4, 2000), (0, 12, 9000), (500, 8, 4000)):
        keys = 0.5 * prompt * (prompt + 1)
        truth = step_s(prompt + count, keys, context)
        assert fitted.step(prompt, keys, count, context)[0] == pytest.approx(truth, rel=0.02)
    assert fitted.log_sigma < 0.01
    path = tmp_path / "steps.csv"
    rows = [
        ",".join("" if v is None else str(v) for v in row.values())
        for row in step_rows(found.steps)
    ]
    path.write_text("\n".join([HEADER, *rows]), encoding="utf-8")
    again = read_step_times(path)
    assert again.time_s == pytest.approx(found.steps.time_s, rel=1e-6)
    assert again.energy_j is None


def test_the_calibrated_server_is_served_as_it_ran(bench):
    """The simulator, given the steps, gives the benchmark's own times back."""
    steps = fit_steps(read_benchmark(bench).steps)
    content = json.loads(bench.read_text(encoding="utf-8"))
    measured = np.mean([np.mean(gaps) for gaps in content["itls"] if gaps])
    load = Arrivals(users=12, requests=60, prompt="uniform:50-900", output="uniform:20-120")
    options = ServingOptions(max_seqs=12, prefix_cache=False)
    result = accelsim.serve("llama-3.1-8b", "h100-sxm-80gb", load, options, steps=steps)
    assert result.tpot_s["mean"] == pytest.approx(measured, rel=0.1)
    assert result.energy_j is None


def test_runs_of_steps_are_steps_one_by_one(bench):
    steps = fit_steps(read_benchmark(bench).steps)
    one_by_one = sum(steps.step(0, 0.0, 7, 3000 + 7 * place)[0] for place in range(40))
    assert steps.decode_run(7, 3000, 40)[0] == pytest.approx(one_by_one)


def test_energy_of_a_file_is_read_where_all_rows_have_it(tmp_path):
    path = tmp_path / "steps.csv"
    rows = [f"0,0,{n},{500 * n},{0.01 + 1e-4 * n},{3 + 0.1 * n}" for n in range(1, 9)]
    path.write_text("\n".join([HEADER, *rows]), encoding="utf-8")
    steps = fit_steps(read_step_times(path), idle_w=80.0)
    assert steps.step(0, 0, 4, 2000)[1] == pytest.approx(3.4, rel=0.01)
    assert steps.idle_w == 80.0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no column prefill_tokens"),
        ("prefill_tokens,s\n1,2", "no column prefill_context_sum"),
        (f"{HEADER}\n1,1,x,0,0.1,", "decode_count"),
        (f"{HEADER}\n1,1,0,0,0.1,", "4 rows or more"),
        (f"{HEADER}\n1,1,0\r,0,0.1,\n", "no CSV"),
        (f"{HEADER}\n{'1' * 140_000},1,0,0,0.1,\n", "no CSV"),
        (f"{HEADER}\n" + "1,1,0,0,-0.1,\n" * 4, "above 0"),
        (f"{HEADER}\n" + "0,0,0,0,0.1,\n" * 4, "compute a token"),
        (f"{HEADER}\n" + "nan,0,1,0,0.1,\n" * 4, "prefill_tokens"),
    ],
)
def test_files_that_are_no_step_times(tmp_path, text, said):
    path = tmp_path / "steps.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises((ProfileError, InvalidValueError), match=said):
        read_step_times(path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "no JSON"),
        ("[]", "no object"),
        ('{"ttfts": []}', "save-detailed"),
        (
            '{"input_lens": [1], "output_lens": [1], "ttfts": [], "itls": [], "start_times": []}',
            "different lengths",
        ),
        (
            json.dumps({name: ["x"] for name in ("input_lens", "output_lens", "ttfts")})[:-1]
            + ', "itls": [[]], "start_times": [0]}',
            "two tokens",
        ),
    ],
)
def test_files_that_are_no_benchmark(tmp_path, content, said):
    path = tmp_path / "bench.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises((ProfileError, InvalidValueError), match=said):
        read_benchmark(path)


def test_columns_without_time_are_refused():
    ones = np.ones(4)
    with pytest.raises(InvalidValueError, match="s = 0"):
        StepColumns(ones, ones, ones, ones, np.zeros(4))

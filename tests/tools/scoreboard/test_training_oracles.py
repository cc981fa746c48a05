"""Closed forms of training equal their published values: single figures always, all rows where the
folder of reference tables is there.
"""

import csv
from pathlib import Path

import pytest

from accelsim.errors import InvalidValueError
from accelsim.scoreboard import validate
from tools.scoreboard.training_oracles import oracle

TABLE = Path(__file__).resolve().parents[4] / "shared/reference/training/closed_form_oracles.csv"
#: Figures with their sources beside them.
FIGURES = [
    # Korthikanti et al. 2022, arXiv:2205.05198, figure 1 and table 2
    ("act_175B_selective+sequence", "s=2048 b=1 h=12288 a=96 L=96 t=8 p=8 v=3", 12.3515625 * 2**30),
    ("act_22B_none (TP only)", "s=2048 b=4 h=6144 a=64 L=48 t=8 p=1 v=1", 59.25 * 2**30),
    ("state_530B", "h=20480 L=105 t=8 p=35", 31.640625 * 2**30),
    # Narayanan et al. 2021, arXiv:2104.04473, equations 2 to 4
    ("params_1T", "V=51200 l=128 h=25600 s=2048", 1008038707200.0),
    ("flops_full_1.7B", "B=1 V=51200 l=24 h=2304 s=2048", 3.0208652476416004e13),
    ("days_1T", "P=1.008e12 T=4.5e11 n=3072 X=1.63e14", 83.87653374233129),
    ("bubble_1f1b_p8_m4", "p=8 m=4", 1.75),
    ("bubble_int_p4_m8_v2", "p=4 m=8 v=2", 0.1875),
    # Qi et al. 2024, arXiv:2401.10241; DeepSeek, DualPipe README
    ("bubble_zbh1_p4_m8", "p=4 m=8", 0.125),
    ("bub_dual_8", "PP=8 F&B=2.5 B=2.0 W=1.0", 4.5),
    # Rajbhandari et al. 2020, arXiv:1910.02054, figure 1 and section 7
    ("ZeRO-2_7.5e+09_64", "psi=7.5e9 Nd=64 K=12", 16.640625e9),
    ("vol_ZeRO-3", "", 3.0),
    # nccl-tests, doc/PERFORMANCE.md; Thakur et al. 2005
    ("busbw_all_reduce ring_8", "n=8", 1.75),
    ("ring_ar_8", "n=8 S=268435456 alpha=5e-06 B=1.5e11", 0.003201746986666667),
    ("rhd_ar_64", "n=64 S=268435456 alpha=1e-05 B=2.5e10", 0.02125929216),
]


@pytest.mark.parametrize(("name", "inputs", "expected"), FIGURES, ids=[row[0] for row in FIGURES])
def test_a_published_figure_is_met(name, inputs, expected):
    assert oracle(name, "", inputs) == pytest.approx(expected, rel=1e-9)


def test_what_is_not_known_is_refused():
    with pytest.raises(InvalidValueError, match="closed form"):
        oracle("latency_of_light", "time", "")


@pytest.mark.skipif(not TABLE.exists(), reason="the reference tables are not here")
def test_every_row_of_the_table_is_met():
    (found,) = validate(["training-oracles"], TABLE.parents[1]).suites
    with TABLE.open(newline="") as file:
        rows = len(list(csv.DictReader(file)))
    assert found.figures.rows_answered == rows
    assert found.suite.findings(found.rows)["mismatches"] == 0

"""Ratios of stacks: what the fit finds in rows made with known ones."""

from __future__ import annotations

import numpy as np
import pytest

from accelsim.catalog.stacks import UNMEASURED_LOG_SIGMA
from tools.refit.whole_models import _between_chips, _explained, _fit, _Row, _spread


def row(stack, board, residual, **shares):
    whole = {"convolution": 0.0, "product": 0.0, "memory": 0.0, "decode": 0.0} | shares
    return _Row(stack, "gpu", "inference", board, residual, 0.05, whole)


def test_no_residual_gives_no_ratio():
    fit = _fit([row("a", "x", 0.0, product=1.0), row("b", "y", 0.0, memory=1.0)])
    assert set(fit.values()) == {0.0}


def test_what_all_stacks_share_carries_over_to_rows_alone_and_many_boards_count_more():
    boards = [row(s, b, 0.3, product=1.0) for s in "ab" for b in "uvwxyz"]
    few = row("c", "n", 0.3, product=1.0)
    alone, among = (_explained(few, _fit(rows)) for rows in ([few], [few, *boards]))
    assert 0 < alone < among < 0.3
    assert _explained(row("d", "n", 0.3, product=1.0), _fit(boards)) == 0.0  # a stack without rows
    assert _explained(row("a", "n", 0.0, memory=1.0), _fit(boards)) == 0.0
    plain = row("tensorrt", "x", 0.3, product=1.0)  # its ratios hold nowhere else
    assert _explained(plain, _fit([plain])) == 0.0


def test_rows_of_one_board_weigh_little_more_than_one():
    one, many = (_fit([row("a", "x", 0.3, product=1.0)] * count) for count in (1, 50))
    two = _fit([row("a", board, 0.3, product=1.0) for board in "xy"])
    ask = row("a", "n", 0.0, product=1.0)
    assert _explained(ask, one) < _explained(ask, many) < _explained(ask, two) * 1.3


def test_a_spread_is_what_operators_do_not_explain():
    def spread(name, error, boards):
        made = (row("pytorch", board, 0.0, product=1.0) for board in boards)
        return _spread(name, [(found, error) for found in made])

    assert spread("pytorch", 0.05, "xyz") == 0.0
    assert spread("pytorch", 0.5, "xyz") == pytest.approx(np.sqrt(0.5**2 - 0.05**2))
    assert spread("tensorrt", 0.5, "xyz") > UNMEASURED_LOG_SIGMA
    assert spread("tensorrt", 0.05, "xyz") == UNMEASURED_LOG_SIGMA
    assert spread("pytorch", 0.05, "xy") == UNMEASURED_LOG_SIGMA


def test_a_family_spreads_as_the_rows_that_spend_their_time_there():
    rows = [(row("a", b, 0.0, product=0.9, memory=0.1), 0.4) for b in "uvwxyz" * 5]
    rows += [(row("a", b, 0.0, memory=1.0), 0.1) for b in "uvwxyz" * 5]
    product, memory = (_spread("a", rows, family) for family in ("product", "memory"))
    assert memory < _spread("a", rows) < product < 0.4
    few = _spread("a", [rows[0], *rows[30:]], "product")
    assert few < product  # drawn to the rows of other families


def chip_row(stack, chip, residual, **shares):
    whole = {"convolution": 0.0, "product": 0.0, "memory": 0.0, "decode": 0.0} | shares
    return _Row(stack, "asic", "inference", chip, residual, 0.05, whole, bare=residual)


def test_a_stack_of_chips_is_told_by_few_of_them_and_carries_little_over():
    rows = [chip_row("neuron", chip, 0.5, product=1.0) for chip in "xyz" for _ in range(5)]
    fit = _fit(rows)
    assert _explained(chip_row("neuron", "n", 0.0, product=1.0), fit) > 0.45
    assert _explained(chip_row("xla", "n", 0.0, product=1.0), fit) < 0.1


def test_chips_spread_as_they_lie_about_the_bare_model_each_counting_once():
    rows = [chip_row("neuron", "x", 0.6, product=1.0)] * 9
    rows += [chip_row("neuron", "y", 0.0, product=1.0)]
    few = 1.78  # Student's t of two chips over the normal's
    assert _between_chips(rows) == pytest.approx(few * 0.6 / np.sqrt(2), rel=0.02)
    assert _spread("neuron", [(one, 0.1) for one in rows]) < 0.3

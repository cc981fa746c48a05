"""Every workload of the catalogue agrees with its published figures."""

import pytest

from accelsim.catalog.workloads import workload, workload_names
from accelsim.dtype import PRECISIONS

FP32 = PRECISIONS["fp32"]
NAMES = workload_names()
FIGURES = [(name, index) for name in NAMES for index in range(len(workload(name).published))]


def figure_id(case):
    name, index = case
    return f"{name}-{workload(name).published[index].quantity}-{index}"


@pytest.mark.parametrize("case", FIGURES, ids=figure_id)
def test_agrees_with_published_figure(case):
    name, index = case
    model = workload(name)
    figure = model.published[index]
    lowered = model.lower(figure.shape, FP32)
    ours = lowered.parameter_count if figure.quantity == "parameters" else lowered.graph.model_flop
    assert ours == pytest.approx(figure.value, rel=figure.tolerance_fraction), figure.source


def test_every_workload_has_a_published_parameter_count():
    without = [
        name
        for name in NAMES
        if not any(f.quantity == "parameters" for f in workload(name).published)
    ]
    assert without == []


def test_tolerances_beyond_half_a_percent_are_few():
    wide = [
        name
        for name, index in FIGURES
        if workload(name).published[index].tolerance_fraction > 0.005
    ]
    assert len(wide) <= 0.2 * len(FIGURES)


def test_resnet_50_is_8_178_gflop():
    """4.089 G multiply-adds (torchvision _ops), 25,557,032 parameters: the anchor of the FLOP
    convention.
    """
    model = workload("resnet-50")
    lowered = model.lower(model.default, FP32)
    assert lowered.graph.model_flop == 8_178_368_512
    assert lowered.parameter_count == 25_557_032

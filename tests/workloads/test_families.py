"""Laws every family obeys: FLOP linear in batch, weights independent of it, rows well formed."""

import numpy as np
import pytest

from accelsim.catalog.workloads import workload, workload_names
from accelsim.dtype import PRECISIONS
from accelsim.errors import InvalidValueError
from accelsim.workloads.families import load_family
from accelsim.workloads.model import FAMILIES, PassShape, family
from accelsim.workloads.operator import DIMENSIONS, OperatorKind, Phase
from accelsim.workloads.training import optimizer, training_graph

FP32, INT8 = PRECISIONS["fp32"], PRECISIONS["int8"]
#: One small workload of each family, chosen by fewest parameters.
BY_FAMILY = {}
for _name in workload_names():
    _model = workload(_name)
    BY_FAMILY.setdefault(_model.family.name, []).append(_name)
SAMPLE = sorted(
    min(names, key=lambda n: workload(n).published[0].value) for names in BY_FAMILY.values()
)


def lower(name, batch=1, precision=FP32, **sizes):
    model = workload(name)
    default = {field: getattr(model.default, field) for field in PassShape.__dataclass_fields__}
    return model.lower(PassShape(**{**default, "batch": batch, **sizes}), precision)


@pytest.mark.parametrize("name", SAMPLE)
def test_flop_is_linear_in_batch_and_parameters_do_not_change(name):
    one, three = lower(name), lower(name, batch=3)
    assert three.graph.model_flop == pytest.approx(3 * one.graph.model_flop, rel=1e-12)
    assert three.parameter_count == one.parameter_count
    assert len(three.graph) == len(one.graph)


@pytest.mark.parametrize("name", SAMPLE)
def test_rows_are_well_formed(name):
    graph = lower(name, batch=2).graph
    for column in ("flop", "read_bytes", "write_bytes", "weight_bytes", "saved_bytes"):
        values = getattr(graph, column)
        assert np.isfinite(values).all()
        assert (values >= 0).all()
    assert (graph.write_bytes > 0).all()
    for row in range(len(graph)):
        kind = OperatorKind(int(graph.kind[row]))
        assert (graph.dims[row, len(DIMENSIONS[kind]) :] == 0).all()
        assert (graph.dependencies_of(row) < row).all()


@pytest.mark.parametrize("name", SAMPLE)
def test_most_rows_carry_a_module_path(name):
    graph = lower(name).graph
    named = sum(bool(path) for path in graph.path)
    assert len(graph) == 1 or named >= 0.8 * len(graph)


@pytest.mark.parametrize("name", SAMPLE)
def test_int8_moves_fewer_bytes_for_the_same_flop(name):
    full, small = lower(name).graph, lower(name, precision=INT8).graph
    assert small.model_flop == full.model_flop
    assert small.total_bytes < full.total_bytes


@pytest.mark.parametrize(
    "name", ["resnet-18", "lenet-5", "bilstm-imdb", "unet-padded", "ncf-ml-20m", "gbdt-higgs"]
)
def test_training_step_lowers(name):
    forward = lower(name, batch=2)
    graph = training_graph(
        forward.graph,
        forward.parameter_count,
        forward.parameter_tensor_count,
        FP32,
        optimizer("adamw"),
    )
    assert graph.total_bytes > forward.graph.total_bytes
    if name != "gbdt-higgs":
        assert {Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER} <= {
            Phase(int(p)) for p in graph.phase
        }


@pytest.mark.parametrize("name", ["vgg-16", "resnet-50", "alexnet", "mobilenet-v1", "googlenet"])
def test_every_weight_is_read_once(name):
    """A network without embeddings reads each parameter once; batch normalisation also reads its
    running statistics.
    """
    lowered = lower(name)
    graph = lowered.graph
    statistics = graph.dims[graph.kind == OperatorKind.BATCH_NORM, 1].sum() * 2
    assert graph.weight_bytes.sum() / 4 == lowered.parameter_count + statistics


@pytest.mark.parametrize("name", ["vgg-16", "alexnet", "inception-v3", "ssd300-vgg16", "unet"])
def test_a_picture_that_is_too_small_is_refused(name):
    with pytest.raises(InvalidValueError, match="input size"):
        lower(name, image_size=8)


def test_registering_a_family_twice_raises():
    load_family("resnet")
    with pytest.raises(InvalidValueError, match="resnet"):
        family("resnet", FAMILIES["resnet"].parameters)(lambda b, p, s: None)

"""A pass taken to further batches is the one written at them."""

from dataclasses import fields, replace

import numpy as np
import pytest

import accelsim
from accelsim.dtype import PRECISIONS
from accelsim.errors import InvalidValueError
from accelsim.workloads.growth import BatchedPass, Lowered
from accelsim.workloads.operator import Phase


def writer(name, phase, precision="bf16", **sizes):
    """Writes a pass of a catalogued model at a batch, each time anew."""
    model = accelsim.workload(name)

    def write(batch: int) -> Lowered:
        builder = model.builder(PRECISIONS[precision], phase)
        model.family.write(builder, model.parameters, replace(model.default, batch=batch, **sizes))
        return Lowered(builder.build(), builder.parameter_count, 1, builder.parameter_bytes, 0.0)

    return write


def assert_same(found: Lowered, expected: Lowered):
    for column in fields(expected.graph):
        a, b = (getattr(one.graph, column.name) for one in (found, expected))
        if isinstance(b, np.ndarray):
            np.testing.assert_allclose(a, b, rtol=1e-12, err_msg=column.name)
        else:
            assert a == b
    assert replace(found, graph=expected.graph).parameter_bytes == expected.parameter_bytes


DECODE = {"seq_len": 1, "context_len": 100}


@pytest.mark.parametrize(
    ("name", "phase", "sizes"),
    [
        ("resnet-18", Phase.FORWARD, {}),
        ("resnext-50-32x4d", Phase.FORWARD, {}),
        ("gnmt", Phase.FORWARD, {}),
        ("dlrm-criteo-kaggle", Phase.FORWARD, {}),
        ("gpt2", Phase.PREFILL, {}),
        ("gpt2", Phase.DECODE, DECODE),
        ("mixtral-8x7b", Phase.DECODE, DECODE),  # few tokens reach few experts
    ],
)
def test_a_further_batch_is_as_if_written(name, phase, sizes):
    write = writer(name, phase, **sizes)
    taken = BatchedPass(write)
    for batch in (4, 2, 5, 8, 3, 64, 1000):
        assert_same(taken.at(batch), write(batch))


def test_later_batches_are_not_written_where_numbers_grow_evenly():
    asked = []
    write = writer("resnet-18", Phase.FORWARD)

    def counted(batch):
        asked.append(batch)
        return write(batch)

    taken = BatchedPass(counted)
    for batch in range(10, 30):
        taken.at(batch)
    assert asked[:4] == [10, 11, 12, 13]
    assert not {*range(14, 30)} & {*asked}


def test_a_model_that_refuses_large_batches_is_written_at_each():
    write = writer("resnet-18", Phase.FORWARD)

    def bounded(batch):
        if batch > 100:
            raise InvalidValueError("batch", batch, "at most 100")
        return write(batch)

    taken = BatchedPass(bounded)
    for batch in (1, 2, 3, 4, 5, 6):
        assert_same(taken.at(batch), write(batch))
    with pytest.raises(InvalidValueError, match="at most 100"):
        taken.at(101)

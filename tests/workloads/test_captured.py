"""Captured workloads without torch: JSON there and back, other precisions and batches, hostile
files.
"""

import copy
import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelsim.dtype import PRECISIONS, Dtype
from accelsim.errors import InputError, InvalidValueError, MissingDependencyError, OutputError
from accelsim.workloads.capture.captured import (
    BatchStep,
    CapturedGraph,
    CapturedModel,
    CapturedPass,
)
from accelsim.workloads.capture.workload import captured_training, load_captured
from accelsim.workloads.graph import OperatorGraph
from accelsim.workloads.model import PassShape, Workload
from accelsim.workloads.operator import MAX_DIMENSIONS, OperatorKind, Phase
from accelsim.workloads.training import OPTIMIZERS

FP32, BF16, INT8, FP8 = (PRECISIONS[name] for name in ("fp32", "bf16", "int8", "fp8"))
COLUMNS = (
    "kind",
    "dims",
    "dtype",
    "phase",
    "flop",
    "read_bytes",
    "write_bytes",
    "weight_bytes",
    "saved_bytes",
)


def perceptron(batch=4, *, training=False, step=True):
    """A captured perceptron with an argmax between its layers."""
    model = CapturedModel(
        forward=CapturedPass(perceptron_graph(batch, training=False, step=step), None),
        training=CapturedPass(perceptron_graph(batch, training=True, step=step), None)
        if training
        else None,
        optimizer="adamw" if training else None,
        precision=FP32,
        parameter_count=178,
        parameter_tensor_count=4,
        trainable_count=178,
        fused_attention=True,
    )
    note = "costed by bytes only: x"
    return Workload(
        "net", "net", "captured", None, None, PassShape(batch=batch), captured=model, note=note
    )


def perceptron_graph(batch, *, training, step):
    """Linear(8, 16), an argmax over it (fixed-width indices), Linear(16, 2); with or without two
    weight gradients.
    """
    kinds = [OperatorKind.GEMM, OperatorKind.REDUCTION, OperatorKind.GEMM]
    kinds += [OperatorKind.GEMM, OperatorKind.GEMM] if training else []
    count = len(kinds)

    def columns(b):
        dims = np.zeros((count, MAX_DIMENSIONS), dtype=np.int64)
        dims[0, :4], dims[1, :2], dims[2, :4] = (1, b, 16, 8), (b, 16), (1, b, 2, 16)
        read = np.array([32 * b, 64 * b, 64 * b], dtype=float)
        write = np.array([64 * b, 8 * b, 8 * b], dtype=float)
        weight = np.array([576.0, 0, 136])
        flop = np.array([256 * b, 16 * b, 64 * b], dtype=float)
        if training:
            dims[3, :4], dims[4, :4] = (1, 2, 16, b), (1, 16, 8, b)
            read, write = np.append(read, [72 * b, 96 * b]), np.append(write, [128.0, 512])
            weight, flop = np.append(weight, [0, 0]), np.append(flop, [64 * b, 256 * b])
        fixed = np.zeros((count, 4))
        fixed[1, 1] = 8 * b
        saved = np.zeros(count)
        saved[0] = 96 * b if training else 0
        return {
            "dims": dims,
            "flop": flop,
            "read_bytes": read,
            "write_bytes": write,
            "weight_bytes": weight,
            "saved_bytes": saved,
            "fixed_bytes": fixed,
        }

    here, there = columns(batch), columns(2 * batch)
    growth = BatchStep(batch, {name: there[name] - here[name] for name in here}) if step else None
    fixed = here.pop("fixed_bytes")
    phases = [Phase.FORWARD] * 3 + [Phase.BACKWARD] * (count - 3)
    graph = OperatorGraph(
        kind=np.array([int(k) for k in kinds], dtype=np.int16),
        dtype=np.full(count, int(Dtype.FP32), dtype=np.int8),
        phase=np.array([int(p) for p in phases], dtype=np.int8),
        **here,
        name=tuple(f"row{i}" for i in range(count)),
        path=tuple(f"layer{i}" for i in range(count)),
        dependency_offset=np.maximum(np.arange(count + 1) - 1, 0),
        dependency=np.arange(count - 1),
    )
    return CapturedGraph(graph, batch, fixed, growth)


def same(a, b):
    return all(
        np.array_equal(getattr(a, c), getattr(b, c))
        for c in (*COLUMNS, "name", "path", "dependency")
    )


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("step", [False, True])
def test_json_round_trip(training, step, tmp_path):
    original = perceptron(training=training, step=step)
    original.save(tmp_path / "net.json")
    loaded = load_captured(json.loads((tmp_path / "net.json").read_text()))
    assert loaded.document() == original.document()
    assert same(loaded.captured.forward.graph.graph, original.captured.forward.graph.graph)
    assert (loaded.name, loaded.note, loaded.default) == (
        original.name,
        original.note,
        original.default,
    )


def test_catalogue_reads_a_saved_capture(tmp_path):
    from accelsim.catalog.workloads import workload

    perceptron().save(tmp_path / "net.json")
    assert (
        workload(str(tmp_path / "net.json")).lower(PassShape(batch=4), FP32).graph.model_flop
        == 4 * 320
    )


def test_an_existing_file_is_kept(tmp_path):
    path = tmp_path / "net.json"
    path.write_text("mine")
    with pytest.raises(OutputError, match="exists already"):
        perceptron().save(path)
    assert path.read_text() == "mine"
    with pytest.raises(OutputError, match="cannot be written"):
        perceptron().save(tmp_path / "missing" / "net.json")


@given(batch=st.integers(1, 10_000))
@settings(max_examples=30, deadline=None)
def test_any_batch_is_exact(batch):
    lowered = perceptron(4).lower(PassShape(batch=batch), FP32)
    assert same(lowered.graph, perceptron(batch).captured.forward.graph.graph)
    assert (lowered.parameter_count, lowered.parameter_tensor_count) == (178, 4)


def test_without_growth_only_the_captured_batch():
    model = perceptron(4, step=False)
    assert model.lower(PassShape(batch=4), FP32).graph.model_flop == 4 * 320
    for batch in (1, 5, 8):
        with pytest.raises(InvalidValueError, match="captured batch"):
            model.lower(PassShape(batch=batch), FP32)


def test_a_batch_with_fractional_sizes_is_refused():
    document = perceptron(4).document()
    document["graphs"]["forward"]["batch_step"]["dims"][0][1] = 3
    with pytest.raises(InvalidValueError, match="whole"):
        load_captured(document).lower(PassShape(batch=5), FP32)


@pytest.mark.parametrize("policy", [BF16, INT8, FP8], ids=lambda p: p.name)
def test_precision_scales_what_follows_it(policy):
    before = perceptron().lower(PassShape(batch=4), FP32).graph
    after = perceptron().lower(PassShape(batch=4), policy).graph
    ratio, weight_ratio = policy.activation.bytes / 4, policy.weight.bytes / 4
    assert np.array_equal(after.read_bytes, before.read_bytes * ratio)
    assert np.array_equal(after.weight_bytes, before.weight_bytes * weight_ratio)
    assert after.write_bytes[1] == before.write_bytes[1] == 8 * 4  # int64 indices
    assert np.array_equal(after.flop, before.flop)
    assert after.dtype.tolist() == [
        int(policy.compute),
        int(policy.activation),
        int(policy.compute),
    ]


def test_phases():
    model = perceptron(training=True)
    forward = model.lower(PassShape(batch=4), FP32, Phase.PREFILL).graph
    assert len(forward) == 3
    assert set(forward.phase.tolist()) == {int(Phase.PREFILL)}
    with pytest.raises(InvalidValueError, match="phase"):
        model.lower(PassShape(batch=4), FP32, Phase.DECODE)


def test_sizes_other_than_the_batch_are_refused():
    with pytest.raises(InvalidValueError, match="Capture it again"):
        perceptron().lower(PassShape(batch=4, seq_len=128), FP32)
    with pytest.raises(InvalidValueError, match="fused_attention"):
        perceptron().lower(PassShape(batch=4), FP32, fused_attention=False)


@pytest.mark.parametrize("rule", OPTIMIZERS)
def test_training_step_ends_with_the_optimizer(rule):
    graph = captured_training(
        perceptron(training=True), PassShape(batch=8), BF16, optimizer_name=rule
    )
    assert graph.phase.tolist() == [0, 0, 0, 1, 1, int(Phase.OPTIMIZER)]
    assert graph.dims[-1, :3].tolist() == [178, OPTIMIZERS[rule].state_count, 4]
    assert graph.model_flop == 2 * 8 * 320
    assert graph.saved_bytes.sum() == 8 * 96 / 2


def test_training_needs_a_training_capture():
    with pytest.raises(InvalidValueError, match="training=True"):
        captured_training(perceptron(), PassShape(batch=4), FP32)
    with pytest.raises(InvalidValueError, match="trained"):
        captured_training(perceptron(training=True), PassShape(batch=4), INT8)


# -- without torch


def test_capturing_without_torch_names_the_extra(monkeypatch):
    from accelsim.workloads.capture.torch.module import capture, capture_target

    monkeypatch.setitem(sys.modules, "torch", None)
    for attempt in (lambda: capture(object()), lambda: capture_target("package.module:factory")):
        with pytest.raises(MissingDependencyError, match=r"accelsim\[torch\]"):
            attempt()


def test_a_saved_capture_needs_no_torch(tmp_path):
    perceptron(training=True).save(tmp_path / "net.json")
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from accelsim.catalog.workloads import workload\n"
        "from accelsim.workloads.capture.workload import captured_training\n"
        "from accelsim.dtype import precision\n"
        "from accelsim.workloads.model import PassShape\n"
        "model = workload(sys.argv[1])\n"
        "print(len(captured_training(model, PassShape(batch=3), precision('bf16'))))\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "net.json")]
    result = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2]
    )
    assert result.stdout == "6\n", result.stderr


# -- hostile files


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("version",), 2),
        (("format",), "other"),
        (("name",), ""),
        (("name",), "x" * 1000),
        (("training",), "yes"),
        (("optimizer",), "sgdd"),
        (("precision",), "fp13"),
        (("parameter_count",), -1),
        (("parameter_count",), True),
        (("trainable_count",), 2**70),
        (("graphs",), []),
        (("graphs", "forward"), None),
        (("graphs", "forward", "batch"), 0),
        (("graphs", "forward", "operators"), "x"),
        (("graphs", "forward", "operators", "flop"), [1.0]),
        (("graphs", "forward", "operators", "phase"), ["forward", "backward", "forward"]),
        (("graphs", "forward", "operators", "dependencies"), [[5], [], []]),
        (("graphs", "forward", "fixed_bytes"), [[0, 0, 0, 0]]),
        (("graphs", "forward", "fixed_bytes"), [[1e9, 0, 0, 0]] * 3),
        (("graphs", "forward", "fixed_bytes"), [[0, 0, 0], [0], []]),
        (("graphs", "forward", "batch_step"), 3),
        (("graphs", "forward", "batch_step", "unit"), 0),
        (("graphs", "forward", "batch_step", "flop"), ["a", "b", "c"]),
        (("graphs", "forward", "batch_step", "flop", 0), 1e300),
        (("graphs", "forward", "batch_step", "read_bytes", 0), 1e300),
        (("graphs", "forward", "batch_step", "dims"), [[0.5] * MAX_DIMENSIONS] * 3),
        (("graphs", "forward", "scalable"), {}),
        (("training",), True),
    ],
)
def test_bad_fields_are_named(path, value):
    document = copy.deepcopy(perceptron().document())
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(InputError):
        load_captured(document)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
_KEYS = sorted(
    {
        *perceptron().document(),
        *perceptron().document()["graphs"]["forward"]["operators"],
    }
)


@given(key=st.sampled_from(_KEYS), value=_JSON)
@settings(max_examples=150, deadline=None)
def test_any_replaced_field_loads_or_is_refused(key, value):
    document = copy.deepcopy(perceptron().document())
    target = document if key in document else document["graphs"]["forward"]["operators"]
    target[key] = value
    with suppress(InputError):
        assert len(load_captured(document).lower(PassShape(batch=4), FP32).graph) <= 3


# -- with torch


@pytest.mark.torch
def test_a_real_capture_survives_json(tmp_path):
    torch = pytest.importorskip("torch")
    from accelsim.workloads.capture.torch.module import capture

    net = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    model = capture(net, torch.empty(1, 12, 64, device="meta"), training=True, name="layer")
    assert model.captured.training.scalable is not None  # a copy is left out at batch 1
    model.save(tmp_path / "layer.json")
    loaded = load_captured(json.loads((tmp_path / "layer.json").read_text()))
    for batch in (1, 2, 7):
        for policy in (FP32, BF16):
            shape = PassShape(batch=batch)
            assert same(
                captured_training(loaded, shape, policy), captured_training(model, shape, policy)
            )


@pytest.mark.torch
def test_frozen_weights_have_neither_gradient_nor_state():
    torch = pytest.importorskip("torch")
    from accelsim import capture, estimate

    class Adapted(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.base = torch.nn.Linear(256, 256, bias=False).requires_grad_(False)
            self.down, self.up = (
                torch.nn.Linear(256, 4, bias=False),
                torch.nn.Linear(4, 256, bias=False),
            )

        def forward(self, x):
            return self.base(x) + self.up(self.down(x))

    captured = capture(Adapted, torch.empty(8, 256, device="meta"), training=True)
    memory = estimate(captured, "a100", mode="training", precision="fp32").memory
    trained = 2 * 4 * 256
    assert memory["weight_bytes"] == 4 * (trained + 256 * 256)
    assert (memory["gradient_bytes"], memory["optimizer_bytes"]) == (4 * trained, 8 * trained)

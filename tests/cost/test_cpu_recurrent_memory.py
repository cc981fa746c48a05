"""What an LSTM layer allocates, against traced block sizes."""

import pytest

pytest.importorskip("torch")

from accelsim.calibration.measurement.captured_rows import case_graph
from accelsim.calibration.measurement.case import Case
from accelsim.cost.cpu.recurrent_memory import (
    HELD,
    SAVED,
    Script,
    lstm_script,
    lstm_workspace_bytes,
    workspaces,
)

#: Batch, steps, input and hidden width; bytes of the workspace that oneDNN 3.12 asked for in fp32
#: and bf16.
TRACED = [
    ((16, 40, 96, 128), 5038080, 3547136),
    ((8, 20, 256, 96), 1675264, 1286144),
    ((4, 10, 100, 100), 282624, 212992),
    ((8, 20, 96, 256), 2637824, 1884160),
    ((1, 30, 320, 320), 606208, 430080),
]


@pytest.mark.parametrize(("shape", "fp32", "bf16"), TRACED)
def test_the_workspace_is_as_large_as_traced(shape, fp32, bf16):
    assert lstm_workspace_bytes(*shape, 4.0) == pytest.approx(fp32, rel=0.04)
    assert lstm_workspace_bytes(*shape, 2.0) == pytest.approx(bf16, rel=0.04)


#: Batch, steps, input and hidden width; bytes of the scratch of a forward pass in fp32 and bf16.
SCRATCH = [
    ((10, 25, 130, 200), 901896, 488184),
    ((100, 22, 64, 128), 4981512, 2605816),
    ((70, 250, 25, 80), 22614792, 12485368),
    ((64, 192, 40, 40), 8754008, 5194568),
    ((800, 1, 25, 40), 1798920, 1286904),
    ((32, 1, 512, 512), 873304, 578376),
]


@pytest.mark.parametrize(("shape", "fp32", "bf16"), SCRATCH)
def test_the_scratch_is_as_large_as_traced(shape, fp32, bf16):
    for width, traced in ((4.0, fp32), (2.0, bf16)):
        assert max(size for slot, size in lstm_script(*shape, width) if slot == 3) == pytest.approx(
            traced, rel=0.035
        )


def test_the_backward_pass_reads_the_workspace_that_the_forward_pass_left():
    shape = {"batch": 16, "steps": 40, "input": 96, "hidden": 128}
    graph = case_graph(
        [
            Case("recurrent", name, shape)
            for name in ("lstm", "lstm_train", "lstm_backward", "gru_train")
        ]
    )
    own = float(lstm_workspace_bytes(16, 40, 96, 128, 4.0))
    assert workspaces(graph, is_training=False).tolist() == [0.0, own, own, 0.0]
    assert workspaces(graph, is_training=True).tolist() == [own, own, own, 0.0]


def _left(script: Script) -> tuple[dict[int, float], dict[int, float]]:
    """Sizes by slot that a script does not free, and sums of the blocks that outlive it."""
    open_slots: dict[int, float] = {}
    kept = {HELD: 0.0, SAVED: 0.0}
    for slot, size in script:
        if slot in kept:
            kept[slot] += size
        elif size:
            assert slot not in open_slots
            open_slots[slot] = size
        else:
            del open_slots[slot]
    return open_slots, kept


@pytest.mark.parametrize("width", [2.0, 4.0])
@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("mode", ["inference", "training", "backward"])
def test_only_outputs_workspaces_and_gradients_outlive_a_layer(width, directions, mode):
    shape = (16, 40, 96, 128, width)
    script = lstm_script(
        *shape, directions, is_training=mode == "training", is_backward=mode == "backward"
    )
    left, kept = _left(script)
    rows = 16 * 40 * width
    assert left == {0: rows * 96 if mode == "backward" else rows * 128 * directions}
    assert kept[HELD] == (directions * 4 * 128 * (96 + 128) * width if mode == "backward" else 0.0)
    saved = lstm_workspace_bytes(*shape) + (rows * 128 if directions == 2 else 0.0)
    assert kept[SAVED] == (directions * saved if mode == "training" else 0.0)


def test_directions_of_a_layer_copy_their_weights_one_after_the_other():
    """Traced: 393,216 and 589,824 bytes in each direction, outputs of 36,864 joined in one of
    73,728.
    """
    script = lstm_script(1, 48, 128, 192, 4.0, 2)
    sizes = [size for _, size in script]
    assert [sizes.count(size) for size in (393_216, 589_824, 36_864, 73_728)] == [2, 2, 2, 1]
    taken = peak = 0.0
    slots: dict[int, float] = {}
    for slot, size in script:
        taken += size or -slots[slot]
        slots[slot] = size
        peak = max(peak, taken)
    assert peak < 1.3e6


def test_weight_gradients_of_16_bits_pass_through_32():
    sizes = [size for _, size in lstm_script(16, 40, 96, 128, 2.0, is_backward=True)]
    for weights in (4 * 128 * 96, 4 * 128 * 128):
        assert sizes.count(4.0 * weights) == 2
        assert sizes.count(2.0 * weights) == 2

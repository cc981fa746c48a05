"""What an LSTM layer allocates in training, against traced block sizes."""

import pytest

from accelsim.cost.cpu.recurrent_memory import HELD, lstm_script, lstm_workspace_bytes

#: Batch, steps, input and hidden width; bytes of the workspace that oneDNN 3.12 asked for in fp32 and bf16.
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


@pytest.mark.parametrize("width", [2.0, 4.0])
@pytest.mark.parametrize("is_backward", [False, True])
def test_only_outputs_and_gradients_outlive_a_layer(width, is_backward):
    script = lstm_script(16, 40, 96, 128, width, is_backward=is_backward)
    open_slots: dict[int, float] = {}
    held = 0.0
    for slot, size in script:
        if slot == HELD:
            held += size
        elif size:
            assert slot not in open_slots
            open_slots[slot] = size
        else:
            del open_slots[slot]
    assert held == (4 * 128 * (96 + 128) * width if is_backward else 0.0)
    output = (
        16 * 40 * 96 * width if is_backward else 16 * 40 * 128 * width + lstm_workspace_bytes(16, 40, 96, 128, width)
    )
    assert open_slots == {0: output}


def test_weight_gradients_of_16_bits_pass_through_32():
    sizes = [size for _, size in lstm_script(16, 40, 96, 128, 2.0, is_backward=True)]
    for weights in (4 * 128 * 96, 4 * 128 * 128):
        assert sizes.count(4.0 * weights) == 2
        assert sizes.count(2.0 * weights) == 2

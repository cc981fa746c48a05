"""What an LSTM layer keeps for its backward pass, against traced block sizes."""

import pytest

pytest.importorskip("torch")

from accelsim.calibration.measurement.captured_rows import case_graph
from accelsim.calibration.measurement.case import Case
from accelsim.cost.cpu.recurrent_memory import lstm_workspace_bytes, workspaces

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

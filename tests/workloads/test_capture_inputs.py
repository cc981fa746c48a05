"""Inputs of captured modules: keywords, those a module names itself, and one sample where nobody
gives any.
"""

import pytest

import accelsim
from accelsim.errors import CaptureError

torch = pytest.importorskip("torch")


class Scaled(torch.nn.Module):
    """Needs a keyword."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 4)

    def forward(self, x, *, scale):
        return self.linear(x) * scale


def inputs():
    return torch.empty(2, 8), {"scale": torch.empty(2, 1)}


def test_a_factory_gives_keywords_beside_its_arguments():
    x, keywords = inputs()
    alone = accelsim.capture(lambda: (Scaled(), (x,), keywords))
    mapping = accelsim.capture(Scaled(), {"x": x, **keywords})
    assert alone.captured.forward.graph.graph.model_flop == 2 * 2 * 8 * 4
    assert len(alone.captured.forward.graph.graph) == len(mapping.captured.forward.graph.graph)


@pytest.mark.parametrize(
    ("module", "flop"),
    [
        (lambda: torch.nn.Sequential(torch.nn.Linear(8, 4)), 2 * 8 * 4),
        (lambda: torch.nn.Conv2d(3, 5, 1), 2 * 3 * 5 * 224**2),
        (
            lambda: torch.nn.Sequential(torch.nn.Embedding(9, 8), torch.nn.Linear(8, 4)),
            2 * 128 * 8 * 4,
        ),
    ],
)
def test_a_module_alone_is_captured_at_one_sample(module, flop):
    assert accelsim.capture(module).captured.forward.graph.graph.model_flop == flop


def test_a_module_names_its_inputs_itself():
    module = torch.nn.Linear(8, 4)
    module.example_input_array = torch.empty(16, 8)
    assert accelsim.capture(module).captured.forward.graph.batch == 16


def test_a_module_passed_to_an_estimate_is_captured():
    module = torch.nn.Sequential(torch.nn.Linear(256, 64), torch.nn.ReLU())
    for mode in ("inference", "training"):
        found = accelsim.estimate(module, "t4", mode=mode)
        assert found.workload == "Sequential"
        assert found.latency_s > 0


def test_inputs_that_nobody_knows_are_asked_for():
    with pytest.raises(CaptureError, match="example_inputs are missing"):
        accelsim.capture(torch.nn.LSTM(4, 4))

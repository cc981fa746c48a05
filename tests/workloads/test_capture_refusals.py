"""What capture does with modules that look at data, fail, or cannot be captured, and with import
targets.
"""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn.attention.flex_attention import flex_attention  # noqa: E402

import accelsim  # noqa: E402
from accelsim.errors import CaptureError, InvalidValueError, UnknownNameError  # noqa: E402
from accelsim.workloads.capture.torch.aten import FORMULAS, formula  # noqa: E402
from accelsim.workloads.capture.torch.module import capture, capture_target  # noqa: E402

pytestmark = pytest.mark.torch


class Apply(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function, self.inner = function, nn.Linear(8, 8)

    def forward(self, *inputs):
        return self.function(self.inner(inputs[0]), *inputs[1:])


def flop(function, *inputs, **options):
    captured = capture(Apply(function), inputs, **options).captured
    return (captured.training or captured.forward).graph.graph.model_flop


LINEAR = 2 * 4 * 8 * 8
X = torch.ones(4, 8)


# -- data


def test_known_values_are_followed():
    lengths = torch.tensor([3, 5, 2, 4])
    assert (
        flop(lambda y, n: y[:, : n.max().item()] @ y[:, : int(n.max())].t(), X, lengths)
        == LINEAR + 2 * 4 * 4 * 5
    )


def test_known_masks_select_rows():
    mask = torch.tensor([True, False, True, True])
    assert flop(lambda y, m: y[m] @ y[m].t(), X, mask) == LINEAR + 2 * 3 * 3 * 8


def test_known_values_change_in_place():
    def forward(y):
        count = torch.zeros(3, dtype=torch.long)
        count[1:].add_(2)
        count.mul_(2)
        return y[:, : count.sum().item()] @ y.new_ones(8, 2)

    assert flop(forward, X) == LINEAR + 2 * 4 * 8 * 2


def test_values_replaced_by_unknown_ones_are_forgotten():
    def forward(y):
        known = torch.ones(4)
        known.copy_(y[:, 0])
        return y if known.sum() > 0 else -y

    with pytest.raises(CaptureError, match="depends on data"):
        flop(forward, X)


@pytest.mark.parametrize(
    "function",
    [
        lambda y: y if y.sum() > 0 else -y,
        lambda y: y[y > 0],
        lambda y: y[: int(y.sum().item())],
        torch.unique,
    ],
    ids=["branch", "mask", "size", "unique"],
)
def test_unknown_data_is_refused_with_a_remedy(function, capfd):
    with pytest.raises(CaptureError, match="replace the branch") as caught:
        flop(function, X)
    assert "Apply" in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_a_random_scalar_takes_its_median():
    assert flop(lambda y: y if torch.rand([]) < 0.1 else y @ y.t(), X) == LINEAR + 2 * 4 * 4 * 8


# -- failures


@pytest.mark.parametrize(
    ("module", "inputs", "says"),
    [
        (nn.Sequential(nn.Linear(8, 8), nn.Linear(9, 9)), X, "'1' cannot be captured"),
        (Apply(lambda y: torch.from_numpy(y.numpy())), X, "numpy"),
        (
            Apply(lambda y: flex_attention(*[y.view(1, 2, 4, 4)] * 3)),
            X,
            "flex_attention .* scaled_dot_product_attention",
        ),
        (nn.Identity(), X, "no operator"),
        (nn.LSTM(8, 8), None, "example_inputs are missing"),
        (nn.Linear(8, 8), "text", "example_inputs = str"),
        (nn.LazyLinear(8), X, "lazy"),
        ("text", X, "module = str"),
        (lambda: 3, X, "returned int"),
        (lambda: 1 / 0, X, "ZeroDivisionError"),
        (lambda argument: argument, X, "without arguments"),
    ],
)
def test_refusals_say_where_and_what_next(module, inputs, says):
    with pytest.raises(CaptureError, match=says):
        capture(module, inputs)


def test_packed_sequences_are_refused():
    net = Apply(lambda y, n: nn.utils.rnn.pack_padded_sequence(y, n, enforce_sorted=False).data)
    with pytest.raises(CaptureError, match="Pass padded sequences"):
        capture(net, (torch.ones(5, 4, 8), torch.tensor([5, 4, 2, 1])))


def test_training_without_gradient_is_refused():
    with pytest.raises(CaptureError, match="no output depends"):
        capture(Apply(lambda y: y.detach()), X, training=True)
    with pytest.raises(InvalidValueError, match="precision"):
        capture(nn.Linear(8, 8), X, training=True, precision="int8")
    with pytest.raises(UnknownNameError, match="adamw"):
        capture(nn.Linear(8, 8), X, training=True, optimizer="adamz")


def test_state_is_restored_after_a_failure():
    from torch.nn import functional

    original = functional.scaled_dot_product_attention
    with pytest.raises(CaptureError):
        capture(Apply(lambda y: y.undefined), X)
    assert functional.scaled_dot_product_attention is original
    assert nn.Linear(8, 8)(X).shape == (4, 8)
    assert not nn.modules.module._global_forward_hooks


# -- unknown operators


@pytest.fixture
def library():
    with torch.library._scoped_library("accelsim_test", "FRAGMENT") as made:
        yield made


def test_unknown_operators_are_costed_by_bytes_and_listed(library):
    library.define("mystery(Tensor x) -> Tensor")
    library.impl("mystery", torch.empty_like, "Meta")
    model = capture(Apply(torch.ops.accelsim_test.mystery), X)
    graph = model.captured.forward.graph.graph
    assert "mystery" in model.note
    assert (graph.flop[1], graph.read_bytes[1], graph.write_bytes[1]) == (0, 4 * 32, 4 * 32)


def test_unknown_matrix_operators_are_refused(library):
    library.define("fancy_matmul(Tensor x) -> Tensor")
    library.impl("fancy_matmul", torch.empty_like, "Meta")
    with pytest.raises(CaptureError, match="fancy_matmul"):
        capture(Apply(torch.ops.accelsim_test.fancy_matmul), X)


def test_a_formula_is_registered_once():
    with pytest.raises(InvalidValueError, match="not registered yet"):
        formula("addmm")(lambda call: [])
    assert "addmm" in FORMULAS


# -- inputs


def test_inputs_by_keyword_and_from_the_factory():
    by_keyword = capture(nn.Linear(8, 8), {"input": X})
    from_factory = capture(lambda: (nn.Linear(8, 8), torch.empty(4, 8)))
    assert (
        by_keyword.captured.forward.graph.graph.model_flop
        == from_factory.captured.forward.graph.graph.model_flop
        == LINEAR
    )


def test_tensors_no_module_registered_are_converted():
    net = Apply(lambda y: y * torch.arange(8) + torch.tensor([1.0] * 8))
    net.stray = torch.ones(8)
    net.function = lambda y: y * net.stray
    graph = capture(net, X).captured.forward.graph.graph
    assert np.array_equal(graph.read_bytes[:2], [4 * 32, 4 * 32 + 4 * 8])


def test_bf16_modules_follow_the_policy():
    wide, narrow = (
        capture(nn.Linear(8, 8, dtype=d), X.to(d)).captured for d in (torch.float32, torch.bfloat16)
    )
    assert np.array_equal(wide.forward.graph.graph.bytes, narrow.forward.graph.graph.bytes)


# -- import targets


@pytest.fixture
def package(tmp_path, monkeypatch):
    (tmp_path / "nets_of_mine.py").write_text(
        "import torch\n"
        "def net():\n    return torch.nn.Linear(8, 8), torch.empty(4, 8)\n"
        "instance = torch.nn.Linear(8, 8)\n"
        "class Own(torch.nn.Linear):\n    def __init__(self):\n        super().__init__(8, 8)\n"
    )
    (tmp_path / "broken_nets.py").write_text("import does_not_exist\n")
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize("name", ["net", "instance", "Own"])
def test_target_is_a_factory_an_instance_or_a_class(name):
    model = capture_target(f"nets_of_mine:{name}", None if name == "net" else X)
    assert model.captured.forward.graph.graph.model_flop == LINEAR


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("nets_of_mine", "package.module:factory"),
        ("nets_of_mine:", "package.module:factory"),
        ("../nets:net", "package.module:factory"),
        ("nets_of_mine:missing", "has no 'missing'"),
        ("no_such_nets:net", "cannot be imported"),
        ("broken_nets:net", "does_not_exist"),
        ("nets_of_mine:torch", "expected a torch.nn.Module"),
    ],
)
def test_bad_targets_are_refused(target, says):
    with pytest.raises(CaptureError, match=says):
        capture_target(target)


# -- devices and formats of the code that is captured


class NamesItsDevice(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x):
        ones = torch.ones(8, device=torch.device("cuda", 1)) + torch.zeros(8).to("cuda:0")
        return (self.linear(x.cuda()) + ones).to(device="cuda", dtype=torch.float32)


@pytest.mark.parametrize(
    "make", [NamesItsDevice, lambda: NamesItsDevice().cuda(), lambda: NamesItsDevice().to("cuda")]
)
def test_code_that_names_a_gpu_needs_none(make):
    model = capture(make, X, training=True)
    assert model.captured.forward.graph.graph.model_flop == LINEAR
    assert model.captured.training.graph.graph.model_flop == 2 * LINEAR


@pytest.mark.filterwarnings("ignore")
def test_a_quantized_module_names_what_to_capture_instead():
    quantized = torch.ao.quantization.quantize_dynamic(
        torch.nn.Sequential(torch.nn.Linear(8, 8)), {torch.nn.Linear}
    )
    with pytest.raises(CaptureError, match="Capture the float module"):
        capture(quantized, X)


def test_a_captured_module_has_its_own_sizes():
    model = capture(torch.nn.Linear(8, 8), X)
    with pytest.raises(InvalidValueError, match="has the sizes it was captured at"):
        accelsim.estimate(model, "t4", image_size=128)


def test_workloads_and_graphs_show_themselves_in_a_line():
    model = capture(torch.nn.Linear(8, 8), X)
    assert len(repr(model)) < 400
    assert repr(model.captured.forward.graph.graph).startswith("<OperatorGraph: 1 operators")
    assert repr(accelsim.operator_costs(model.captured.forward.graph.graph, "t4")).startswith(
        "<CostTable: 1 operators"
    )

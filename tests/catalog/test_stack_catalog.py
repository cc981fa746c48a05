"""Stacks: every file reads, has a source, and one is the default of every device."""

from __future__ import annotations

import pytest

from accelsim import catalog
from accelsim.catalog import stacks as stack_catalog
from accelsim.errors import ProfileError, UnknownNameError
from accelsim.files.datafile import data_root

NAMED = {"pytorch", "tensorrt", "vllm", "tensorrt-llm", "sglang", "lmdeploy", "llama-cpp"}
NAMED |= {"openvino", "onnxruntime", "xla", "dpu"}


def test_the_named_stacks_are_there_and_read():
    assert set(stack_catalog.stack_names()) >= NAMED
    for name in stack_catalog.stack_names():
        found = stack_catalog.stack(name.upper())
        assert found.name == name
        assert found.paths


def test_only_frameworks_and_trainers_have_modes():
    modes = {n: set(stack_catalog.stack(n).paths) for n in stack_catalog.stack_names()}
    assert modes.pop("pytorch") == {"eager", "graph", "compiled", "compiled-calls"}
    assert modes.pop("torchtitan") == {"eager", "compiled"}
    assert modes.pop("mxnet") == {"eager", "graph"}
    assert modes.pop("megatron") == modes.pop("nemo") == {"eager", "graph"}
    assert all(len(paths) == 1 for paths in modes.values())


def test_every_device_has_a_default_that_runs_on_it():
    for name in catalog.device_names():
        device = catalog.device(name)
        assert stack_catalog.default_stack(device).runs(device), name


def test_a_stack_nobody_measured_spreads():
    for name in ("onnxruntime", "sglang", "xla", "vllm"):
        found = stack_catalog.stack(name).log_sigmas("gpu", "inference")
        assert min(found.values()) >= stack_catalog.UNMEASURED_LOG_SIGMA
    unmeasured = stack_catalog.stack("vendor-compiler").log_sigmas("fpga", "training")
    assert set(unmeasured.values()) == {stack_catalog.UNMEASURED_LOG_SIGMA}


@pytest.mark.parametrize("name", ["xla", "vendor-compiler"])
@pytest.mark.parametrize("mode", ["inference", "training"])
def test_a_chip_without_rows_spreads_as_chips_lie_apart(name, mode):
    """Chips left out are 40 % off in the median: 0.35 in ln(time) is 42 %."""
    measured = stack_catalog.stack("neuron").log_sigmas("asic", "inference")
    (sigma,) = set(stack_catalog.stack(name).log_sigmas("asic", mode).values())
    assert sigma > max(0.35, *measured.values())


def test_chips_have_stacks_of_their_own():
    chips = {"inferentia1": "neuron", "trainium2": "neuron", "edge-tpu": "tflite-edgetpu"}
    for chip, name in chips.items():
        found = stack_catalog.default_stack(catalog.device(chip))
        assert found.name == name
        assert not stack_catalog.stack("xla").runs(catalog.device(chip))
        assert found.ratios("asic", "inference")["convolution"] > 1.2


def test_a_family_without_rows_spreads_as_stacks_do_where_whole_networks_were_measured():
    found = stack_catalog.stack("pytorch").log_sigmas("cpu", "inference")
    assert found == dict.fromkeys(("whole", *stack_catalog.FAMILIES), 0.0)
    found = stack_catalog.stack("tensorrt").log_sigmas("gpu", "inference")
    assert found["product"] < found["convolution"] == stack_catalog.UNMEASURED_LOG_SIGMA


@pytest.mark.parametrize("name", ["vllm", "sglang", "onnxruntime", "xla", "tensorrt", "llama-cpp"])
def test_a_stack_without_ratios_of_its_own_takes_the_models_time(name):
    for mode in ("inference", "training"):
        assert stack_catalog.stack(name).ratios("gpu", mode) == {}


def test_an_unknown_stack_names_the_known():
    with pytest.raises(UnknownNameError, match="tensorrt"):
        stack_catalog.stack("tensort")


def test_a_file_under_another_name_is_refused(tmp_path, monkeypatch):
    source = data_root() / "calibration" / "stacks" / "dpu.yaml"
    (tmp_path / "calibration" / "stacks").mkdir(parents=True)
    (tmp_path / "calibration" / "stacks" / "dqu.yaml").write_text(source.read_text())
    monkeypatch.setattr(stack_catalog, "data_root", lambda: tmp_path)
    stack_catalog.stack_names.cache_clear()
    try:
        with pytest.raises(ProfileError, match="dpu"):
            stack_catalog.stack("dqu")
    finally:
        stack_catalog.stack_names.cache_clear()


def test_a_version_says_what_it_lacks():
    usual, old = stack_catalog.stack("pytorch"), stack_catalog.stack("PyTorch@1.13")
    assert (usual.label, old.label) == ("pytorch", "pytorch@1.13")
    assert set(usual.paths) - set(old.paths) == {"compiled", "compiled-calls"}
    assert stack_catalog.stack(f"pytorch@{usual.version.version}").label == "pytorch"
    assert stack_catalog.stack("llama-cpp@b2700").paths["engine"].launch == "eager"


def test_an_unknown_version_names_the_known():
    with pytest.raises(UnknownNameError, match=r"vllm@0\.9"):
        stack_catalog.stack("vllm@0.8")


def test_every_version_differs_from_the_default():
    for name in stack_catalog.stack_names():
        usual, *others = stack_catalog.stack(name).versions
        plain = usual.model_copy(update={"version": "", "source": ""})
        assert all(
            one.model_copy(update={"version": "", "source": ""}) != plain for one in others
        ), name

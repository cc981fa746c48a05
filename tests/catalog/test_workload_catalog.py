"""Lookup of workloads by name, alias and path; users' files; errors that help."""

import contextlib
import inspect
import json
import os
import subprocess
import sys
from importlib import import_module

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from accelsim import estimate
from accelsim.catalog.workload_spec import WorkloadSpec, parse_workload
from accelsim.catalog.workloads import (
    load_workload_file,
    workload,
    workload_aliases,
    workload_names,
)
from accelsim.errors import InputError, ProfileError, UnknownNameError
from accelsim.files.datafile import data_root, read_mapping
from accelsim.workloads.families import FAMILY_MODULES, load_family
from accelsim.workloads.model import FAMILIES

FOLDER = data_root() / "workloads"
SMALL = """\
name: my-mlp
title: My MLP
aliases: [tiny-mlp]
task: image-classification
family: layers
parameters:
  input: [4]
  sections:
    net:
      - {linear: 3, activation: relu}
      - {linear: 2}
published:
  - quantity: parameters
    value: 23
    source: "4*3 + 3 + 3*2 + 2"
"""


@pytest.fixture
def user_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("ACCELSIM_WORKLOAD_PATH", str(tmp_path))
    return tmp_path


def write(folder, text, name="my-mlp.yaml"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_catalogue_covers_the_field():
    names = workload_names()
    assert len(names) >= 60
    wanted = (
        "perceptron mnist-mlp lenet-5 cifar-10-cnn alexnet vgg-11 vgg-19 googlenet inception-v3 "
        "resnet-18 resnet-50 "
        "resnet-152 mobilenet-v1 mobilenet-v2 mobilenet-v3-large efficientnet-b0 densenet-121 "
        "ssd300-vgg16 unet yolo-v3 "
        "lstm-lm-large bilstm-imdb gnmt text-cnn dlrm-mlperf stable-diffusion-1.5 "
        "stable-diffusion-xl gbdt-higgs"
    )
    assert set(wanted.split()) <= set(names)


def test_files_are_named_after_their_workload():
    for name in workload_names():
        assert workload(name).name == name


def test_aliases_file_mirrors_the_files():
    gathered = {}
    for name in workload_names():
        for alias in workload(name).aliases:
            assert alias not in gathered, (
                f"{alias} is an alias of {gathered.get(alias)} and of {name}"
            )
            gathered[alias] = name
    assert read_mapping(FOLDER / "aliases.yaml") == gathered
    assert not set(gathered) & set(workload_names())


def test_family_table_agrees_with_the_modules():
    for name, module in FAMILY_MODULES.items():
        assert load_family(name) is FAMILIES[name]
        source = inspect.getsource(import_module(f"accelsim.workloads.families.{module}"))
        assert f'"{name}"' in source, f"{name} is not registered in {module}"
    assert {
        name for name, f in FAMILIES.items() if f.write.__module__.startswith("accelsim.")
    } == set(FAMILY_MODULES)


@pytest.mark.parametrize("name", ["resnet50", "ResNet-50", "resnet_50", " resnet-50 "])
def test_lookup_forgives_case_underscores_and_aliases(name):
    assert workload(name) is workload("resnet-50")


def test_unknown_name_offers_near_matches():
    with pytest.raises(UnknownNameError, match="resnet-50"):
        workload("resnet-51")


def test_unknown_family_offers_near_matches(tmp_path):
    path = write(tmp_path, SMALL.replace("family: layers", "family: layer"))
    with pytest.raises(InputError, match="layers"):
        load_workload_file(path)


def test_reading_one_workload_imports_one_family():
    code = (
        "import sys; from accelsim.catalog.workloads import workload; workload('resnet-50');"
        "mods = set(sys.modules); assert 'accelsim.workloads.families.vision' in mods;"
        "assert not mods & {'accelsim.workloads.families.diffusion', "
        "'accelsim.workloads.families.recurrent', 'torch', 'pandas', 'scipy'}"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_user_folder_is_searched_first_and_by_alias(user_folder):
    write(user_folder, SMALL)
    write(
        user_folder,
        SMALL.replace("my-mlp", "resnet-50").replace("tiny-mlp", "other"),
        "resnet-50.yaml",
    )
    assert workload("my-mlp") is workload("tiny-mlp")
    assert workload("resnet-50").title == "My MLP"
    assert {"my-mlp", "resnet-18"} <= set(workload_names())
    assert workload_aliases()["tiny-mlp"] == "my-mlp"


def test_missing_user_folder_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("ACCELSIM_WORKLOAD_PATH", str(tmp_path / "gone"))
    with pytest.raises(ProfileError, match="gone"):
        workload("resnet-50")


def test_path_loads_that_file_and_sees_edits(tmp_path):
    path = write(tmp_path, SMALL)
    assert workload(str(path)).title == "My MLP"
    path.write_text(SMALL.replace("My MLP", "Changed"), encoding="utf-8")
    os.utime(path, ns=(1, 1))
    assert workload(str(path)).title == "Changed"


def test_json_workload_is_read(tmp_path):
    path = tmp_path / "m.json"
    data = {"name": "m", "title": "M", "task": "t", "family": "layers"}
    path.write_text(
        json.dumps(data | {"parameters": {"input": [2], "sections": {"": [{"linear": 1}]}}})
    )
    assert load_workload_file(path).name == "m"


@pytest.mark.parametrize(
    ("wrong", "line", "field"),
    [
        (SMALL.replace("linear: 3,", "linear: -3,"), 10, "parameters.sections.net.0.linear"),
        (SMALL.replace("linear: 3,", "linear: three,"), 10, "parameters.sections.net.0.linear"),
        (SMALL.replace("linear: 3,", "lineal: 3,"), 10, "lineal"),
        (SMALL.replace("value: 23", "value: -1"), 14, "published.0.value"),
        (SMALL + "    tolerance_fraction: 0.1\n", 13, "note"),
        (SMALL + "surprise: 1\n", 16, "surprise"),
        (SMALL.replace("name: my-mlp", "name: My MLP"), 1, "name"),
        (SMALL.replace("task: image-classification\n", ""), None, "task"),
    ],
)
def test_errors_name_line_and_field(tmp_path, wrong, line, field):
    with pytest.raises(ProfileError) as caught:
        load_workload_file(write(tmp_path, wrong))
    assert field in str(caught.value)
    if line:
        assert f"line {line}" in str(caught.value)


@pytest.mark.parametrize("name", ["no/such/file.yaml", "\0.yaml", "/dev/null.json"])
def test_unreadable_path_is_a_clear_error(name):
    with pytest.raises(ProfileError):
        workload(name)


_json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(
    field=st.sampled_from([*WorkloadSpec.model_fields]),
    value=_json_values,
)
def test_hostile_field_values_never_crash(field, value):
    data = {
        "name": "m",
        "title": "M",
        "task": "t",
        "family": "layers",
        "parameters": {"input": [2], "sections": {"": [{"linear": 1}]}},
    }
    with contextlib.suppress(ValidationError, InputError):
        parse_workload(data | {field: value})


def test_checkpoint_configuration_is_read_and_named_after_its_folder(tmp_path):
    folder = tmp_path / "my-llama"
    folder.mkdir()
    config = {
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 2,
        "vocab_size": 100,
        "hidden_act": "silu",
        "max_position_embeddings": 128,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    model = workload(str(folder / "config.json"))
    assert model.name == "my-llama"
    assert model.autoregressive


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("meta-llama/Llama-3.1-8B", "llama-3.1-8b"),
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("meta-llama/Llama-2-7b-chat-hf", "llama-2-7b"),
        ("google-bert/bert-base-uncased", "bert-base"),
        ("mistralai/Mixtral-8x7B-v0.1", "mixtral-8x7b"),
    ],
)
def test_an_organisation_may_stand_in_front_of_a_name(name, own):
    assert workload(name).name == own


def test_an_unknown_name_with_its_organisation_is_unknown():
    with pytest.raises(UnknownNameError, match=r"llama-3\.1-8b"):
        workload("meta-llama/llama-3.1-9b")


def test_a_model_of_anothers_architecture_keeps_its_own_name():
    asked, base = workload("meta-llama/Llama-3.3-70B-Instruct"), workload("llama-3.1-70b")
    assert (asked.name, asked.architecture) == ("llama-3.3-70b", "llama-3.1-70b")
    assert asked.parameters == base.parameters
    assert asked.notices == ("llama-3.3-70b has the architecture of llama-3.1-70b",)
    assert workload("llama-3-8b").parameters.max_positions == 8192
    estimates = [estimate(model, "b200-sxm") for model in (asked, base)]
    assert [one.workload for one in estimates] == ["llama-3.3-70b", "llama-3.1-70b"]
    assert estimates[0].latency_s == estimates[1].latency_s
    assert set(estimates[0].warnings) == {*estimates[1].warnings, *asked.notices}
    assert not base.notices
    assert not workload("llama3-8b").notices


TWIN = "name: other-mlp\ntitle: Other\nsame_as: {}\n"


def test_an_architecture_is_found_in_the_users_folder(user_folder):
    write(user_folder, SMALL)
    write(user_folder, TWIN.format("my-mlp"), "other-mlp.yaml")
    assert workload("other-mlp").parameters == workload("my-mlp").parameters
    assert workload("other-mlp").aliases == ()


@pytest.mark.parametrize(
    "other", ["other-mlp", "llama-3.3-70b", "no-such-model", "[1]", "resnet-50\nparameters: 3"]
)
def test_an_architecture_that_no_file_writes_is_refused(user_folder, other):
    path = write(user_folder, TWIN.format(other), "other-mlp.yaml")
    with pytest.raises(InputError, match=r"same_as|no-such-model|other-mlp|line 4, parameters"):
        load_workload_file(path)

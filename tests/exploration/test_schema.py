"""Schemas agree with the readers of the files."""

from __future__ import annotations

import copy
from pathlib import Path

import jsonschema
import pytest

from accelsim.errors import UnknownNameError
from accelsim.exploration.sweeps.schema import SCHEMAS, json_schema
from accelsim.files.datafile import data_root, read_yaml

ROOT = Path(__file__).resolve().parent.parent.parent
FILES = {"scenario": "examples/vision_api.yaml", "sweep": "examples/device_sweep.yaml"}


def validator(name):
    schema = json_schema(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("folder", ["cpu", "gpu", "fpga", "asic"])
def test_shipped_devices_are_valid(folder):
    check = validator("device")
    files = sorted((data_root() / "device_profiles" / folder).glob("*.yaml"))
    for path in files[::4]:
        assert check.is_valid(read_yaml(path)), path.name


def test_shipped_workloads_scenarios_and_sweeps_are_valid():
    files = sorted((data_root() / "workloads").glob("*.yaml"))
    workload = validator("workload")
    assert all(workload.is_valid(read_yaml(path)) for path in files if path.name != "aliases.yaml")
    for name in ("scenario", "sweep"):
        assert validator(name).is_valid(read_yaml(ROOT / FILES[name]))


def test_wrong_files_are_not():
    device = read_yaml(data_root() / "device_profiles" / "gpu" / "t4.yaml")
    check = validator("device")
    for change in (
        {"wrong_field": 1},
        {"class": "abacus"},
        {"memory": {}},
        {"sm_count": {"value": -1, "source": "sheet"}},
    ):
        assert not check.is_valid(copy.deepcopy(device) | change)
    assert not validator("sweep").is_valid({"name": ""})


def test_units_and_words_are_in_the_schema():
    service = json_schema("scenario")["$defs"]["Service"]
    assert {"latency_p99_s", "latency_p99_ms"} <= set(service["properties"])
    assert "requests" in service["properties"]["latency_p99_s"]["description"]
    choice = json_schema("scenario")["$defs"]["TrainingJob"]["allOf"][-1]["anyOf"]
    assert {"required": ["deadline_hours"]} in choice
    assert "requests_per_ms" not in service["properties"]
    with pytest.raises(UnknownNameError, match="device"):
        json_schema("devices")
    assert all(json_schema(name)["title"] == f"accelsim {name}" for name in SCHEMAS)


def test_every_field_of_a_device_says_what_it_means_and_other_units_say_theirs():
    parts = json_schema("device")["$defs"]
    fields = {
        (part, name): field
        for part, found in parts.items()
        for name, field in found.get("properties", {}).items()
    }
    silent = [name for name, field in fields.items() if not field.get("description")]
    assert {name for _, name in silent} <= {"class", "slice"}
    said = fields["GpuProfile", "boost_clock_mhz"]["description"]
    assert said == "Highest clock, hertz. Here in the unit that this name ends in."


def test_fields_of_a_sweep_say_what_the_options_say():
    fields = json_schema("sweep")["properties"]["fixed"]["properties"]
    assert fields["seq_len"]["description"] == "Input tokens per sequence."
    assert (fields["tp"]["minimum"], fields["tp"]["maximum"]) == (1, 100_000)
    spec = {"name": "a", "of": "serve", "fixed": {"model": "llama-3.1-8b", "tp": 2}}
    assert validator("sweep").is_valid(spec)
    spec["fixed"]["tp"] = 0
    assert not validator("sweep").is_valid(spec)

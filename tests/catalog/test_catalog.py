"""Lookup by name, alias and slice; files of the user; errors that help."""

import contextlib
import copy
import gc
import os
import re
import subprocess
import sys
from functools import _lru_cache_wrapper

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import accelsim
from accelsim import catalog
from accelsim.catalog import device, device_names, load_device_file
from accelsim.dtype import Dtype
from accelsim.errors import InputError, ProfileError, UnknownNameError
from accelsim.files.datafile import data_root, read_mapping
from accelsim.hardware.sourced import Sourced

REQUIRED = [
    "h100-sxm-80gb",
    "h100-pcie-80gb",
    "a100-pcie-40gb",
    "a100-sxm-40gb",
    "a100-sxm-80gb",
    "t4",
    "v100-pcie-32gb",
    "v100-sxm2-16gb",
    "p100-pcie-16gb",
    "p4",
    "mi100",
    "gtx-1080",
    "gtx-1080-ti",
    "h200-sxm-141gb",
    "b200-sxm",
    "tpu-v1",
    "tpu-v4",
    "tpu-v5e",
    "tpu-v5p",
    "tpu-v6e",
    "zcu102",
    "zcu104",
    "alveo-u280",
    "alveo-u50",
    "vck190",
    "kv260",
    "epyc-9654",
    "epyc-7763",
    "xeon-platinum-8380",
    "xeon-platinum-8480+",
    "graviton3",
    "core-i7-3820",
    "jetson-agx-orin-64gb",
    "gaudi2",
    "trainium1",
    "edge-tpu",
    "eyeriss",
]
ALIASED = {
    "xeon-8480": "xeon-platinum-8480+",
    "coral": "edge-tpu",
    "h100": "h100-sxm-80gb",
    "a100": "a100-sxm-80gb",
}

SMALL_CPU = {
    "name": "my-cpu",
    "class": "cpu",
    "title": "My CPU",
    "aliases": ["mine"],
    "vendor": "Me",
    "year": 2024,
    "core_count": {"value": 4, "kind": "datasheet", "source": "sheet"},
    "simd_width_bits": {"value": 256, "source": "sheet"},
    "fma_ports": {"value": 2, "source": "sheet"},
    "base_clock_ghz": {"value": 3, "source": "sheet"},
    "vector_gflop_per_s": {
        "fp32": {"value": 384, "kind": "derived", "source": "4 x 8 x 2 x 2 x 3 GHz"}
    },
    "memory": {"name": "DDR4", "capacity_gib": {"value": 16, "source": "sheet"}},
    "sources": {"sheet": "The sheet that came with it"},
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("ACCELSIM_DEVICE_PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path


def write(path, data):
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    return path


def test_there_are_at_least_140_devices_of_four_classes():
    profiles = [device(name) for name in device_names()]
    assert len(profiles) >= 140
    counts = {
        kind: sum(p.device_class == kind for p in profiles)
        for kind in ("cpu", "gpu", "fpga", "asic")
    }
    assert min(counts.values()) >= 20


@pytest.mark.parametrize("name", REQUIRED)
def test_required_devices_exist_under_their_names(name):
    assert device(name).name == name


@pytest.mark.parametrize("alias", ALIASED)
def test_common_aliases(alias):
    assert device(alias).name == ALIASED[alias]


def test_aliases_are_unique_and_mirror_the_profiles():
    inside = [(alias, name) for name in device_names() for alias in device(name).aliases]
    assert len(inside) == len(dict(inside))
    assert dict(inside) == dict(catalog.aliases())
    assert not set(catalog.aliases()) & set(device_names())


@pytest.mark.parametrize("spelling", ["H100-SXM-80GB", " h100 sxm 80gb ", "h100_sxm_80gb", "H100"])
def test_names_are_forgiving_about_case_and_separators(spelling):
    assert device(spelling).name == "h100-sxm-80gb"


@pytest.mark.parametrize(
    "name", ["h10O", "", "../../etc/passwd", "a/b", "x" * 10_000, "h100\n", "\0", "@8vcpu", "é"]
)
def test_unknown_names_are_refused(name):
    if name == "h100\n":
        assert device(name).name == "h100-sxm-80gb"
        return
    with pytest.raises(UnknownNameError):
        device(name)


def test_a_near_match_is_offered():
    with pytest.raises(UnknownNameError, match="a100-pcie-40gb"):
        device("a100-pci-40gb")


def walk(value):
    if isinstance(value, Sourced):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from walk(item)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from walk(item)
    elif hasattr(type(value), "model_fields"):
        for field in type(value).model_fields:
            yield from walk(getattr(value, field))


@pytest.mark.parametrize("name", device_names())
def test_every_number_has_a_full_citation_and_every_source_is_used(name):
    profile = device(name)
    cited = {number.source for number in walk(profile)}
    assert all(len(source) >= 4 and source not in profile.sources for source in cited)
    assert set(profile.sources.values()) <= cited
    assert profile.title


def test_v100_has_no_bf16_and_pascal_no_matrix_unit():
    assert Dtype.BF16 not in device("v100-sxm2-16gb").peak_flop_per_s
    assert not device("gtx-1080").matrix_flop_per_s
    assert device("mi100").matrix_flop_per_s[Dtype.FP32].value == pytest.approx(46.1e12)


def test_a_device_reads_and_validates_in_a_few_times_what_its_yaml_takes(calls_in):
    path = data_root() / "device_profiles" / "gpu" / "t4.yaml"
    load_device_file(path)
    text = path.read_text(encoding="utf-8")
    parsing = calls_in(lambda: yaml.load(text, yaml.CSafeLoader))
    assert calls_in(lambda: load_device_file(path)) < 3 * parsing  # 1.9


def test_importing_the_catalogue_is_light():
    heavy = "{'torch', 'pandas', 'scipy', 'simpy', 'rich', 'typer'}"
    code = f"import sys, accelsim.catalog; print(sorted({heavy} & set(sys.modules)))"
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ}
    )
    assert answer.stdout.strip() == "[]"


def test_a_users_device_is_found_by_name_and_alias_and_listed(folder):
    write(folder / "anything.yaml", SMALL_CPU)
    assert device("my-cpu").vector_flop_per_s[Dtype.FP32].value == pytest.approx(384e9)
    assert device("mine").core_count.source == "The sheet that came with it"
    assert "my-cpu" in device_names()
    assert device("my-cpu@2cores").core_count.value == 2


def test_a_users_device_comes_before_the_catalogue(folder):
    write(folder / "t4.yaml", {**SMALL_CPU, "name": "t4", "aliases": []})
    assert device("t4").device_class == "cpu"


def test_the_configuration_folder_is_searched(folder):
    local = folder / "config" / "accelsim" / "devices"
    local.mkdir(parents=True)
    write(local / "cpu.yaml", {**SMALL_CPU, "name": "local/cpu"})
    assert device("local/cpu").title == "My CPU"


def test_a_changed_file_is_read_again(folder):
    path = write(folder / "my.yaml", SMALL_CPU)
    assert device("my-cpu").title == "My CPU"
    write(path, {**SMALL_CPU, "title": "My other CPU, longer"})
    assert device("my-cpu").title == "My other CPU, longer"


def test_a_broken_file_hides_no_other_device_and_is_named_when_nothing_is_found(folder):
    (folder / "broken.yaml").write_text("name: [")
    assert device("t4").name == "t4"
    with pytest.raises(UnknownNameError, match=r"broken\.yaml"):
        device("my-cpu")
    with pytest.raises(ProfileError, match="not valid YAML"):
        device("broken")


def test_a_mistyped_folder_is_named_when_nothing_is_found(monkeypatch):
    monkeypatch.setenv("ACCELSIM_DEVICE_PATH", "/no/such/folder")
    with pytest.raises(UnknownNameError, match="/no/such/folder"):
        device("my-cpu")


def test_the_examples_of_the_readme_are_valid(folder):
    text = (data_root() / "device_profiles" / "README.md").read_text()
    examples = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert len(examples) == 2
    for number, example in enumerate(examples):
        path = folder / f"example-{number}.yaml"
        path.write_text(example)
        assert load_device_file(path).vector_flop_per_s


def test_a_slice_file_names_its_whole(folder):
    path = write(
        folder / "half.yaml",
        {"name": "half-t4", "title": "Half a T4", "slice": {"of": "t4", "sm_count": 20}},
    )
    assert load_device_file(path).sm_count.value == 20
    assert device("half-t4").title == "Half a T4"


def test_a_slice_file_takes_spec_sheet_units(folder):
    path = write(
        folder / "mig.yaml", {"slice": {"of": "a100-sxm-80gb", "sm_count": 28, "memory_gib": 20}}
    )
    profile = load_device_file(path)
    assert profile.name == "mig"
    assert profile.memory.capacity_bytes.value == 20 * 2**30


@pytest.mark.parametrize(
    ("slice_", "reason"),
    [
        ({"of": "t4", "sm_count": 41}, "at most the 40"),
        ({"of": "t4"}, "exactly one of"),
        ({"of": "t4", "sm_count": 0}, "line 4, slice.sm_count: input"),
        ({"of": "t4", "fraction": 2.0}, "less than or equal to 1"),
        ({"sm_count": 4}, "slice.of: field required"),
        ({"of": "t4", "sms": 4}, "slice.sms: extra inputs"),
        ({"of": "tpu-v4", "fraction": 0.5}, "a CPU or GPU"),
        (3, "slice"),
        ("t4", "slice"),
        (None, "slice"),
    ],
)
def test_a_bad_slice_file_is_a_profile_error(folder, slice_, reason):
    with pytest.raises(ProfileError, match=reason):
        load_device_file(write(folder / "bad.yaml", {"name": "bad", "slice": slice_}))


def test_a_slice_of_itself_ends(folder):
    write(folder / "loop.yaml", {"name": "loop", "slice": {"of": "loop", "fraction": 0.5}})
    with pytest.raises(ProfileError, match="deep"):
        device("loop")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"core_count": {"value": 4}}, "core_count.source: field required"),
        ({"core_count": 4}, "core_count: a figure needs its source"),
        ({"core_count": {"value": 4.5, "source": "sheet"}}, "core_count.value"),
        ({"core_count": {"value": True, "source": "sheet"}}, "core_count.value"),
        ({"year": "2024"}, "year: input should be a valid integer"),
        ({"name": "My CPU"}, "name"),
        ({"class": "tpu"}, "class"),
        ({"memory": None}, "memory"),
        ({"base_clock_mhz": {"value": 3000, "source": "sheet"}}, "repeats base_clock_hz"),
        ({"sources": 3}, "sources"),
        ({"colour": "red"}, "line 33, colour: extra inputs"),
    ],
)
def test_a_bad_device_file_says_what_is_wrong(folder, change, reason):
    with pytest.raises(ProfileError, match=reason) as caught:
        load_device_file(write(folder / "bad.yaml", {**SMALL_CPU, **change}))
    assert "bad.yaml" in str(caught.value)


def mutations(tree):
    """Every path of a tree."""
    if isinstance(tree, dict):
        for key, item in tree.items():
            yield (key,)
            yield from ((key, *rest) for rest in mutations(item))
    elif isinstance(tree, list):
        for index, item in enumerate(tree):
            yield (index,)
            yield from ((index, *rest) for rest in mutations(item))


WRONG = [
    None,
    "",
    "x",
    -1,
    0,
    3,
    2**62,
    1.5,
    True,
    [],
    {},
    [[[]]],
    {"value": 1},
    {"value": "a", "source": "abc"},
    {"a": {"b": 1}},
]


@pytest.mark.filterwarnings("ignore::accelsim.errors.AccelsimWarning")
@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.sampled_from(["cpu/epyc-7763", "gpu/t4", "fpga/zcu104", "asic/tpu-v1"]), st.data())
def test_a_mutated_profile_validates_or_is_a_profile_error(tmp_path, which, data):
    original = read_mapping(data_root() / "device_profiles" / f"{which}.yaml")
    path = data.draw(st.sampled_from(list(mutations(original))))
    changed = copy.deepcopy(original)
    parent = changed
    for step in path[:-1]:
        parent = parent[step]
    parent[path[-1]] = data.draw(st.sampled_from(WRONG))
    with contextlib.suppress(ProfileError):
        load_device_file(write(tmp_path / "changed.yaml", changed))


@settings(max_examples=150, deadline=None)
@given(
    st.text(max_size=30) | st.from_regex(r"(t4|epyc-7763|h100)@[0-9a-z.=]{0,12}", fullmatch=True)
)
def test_any_name_gives_a_profile_or_an_input_error(name):
    with contextlib.suppress(InputError):
        assert device(name).name


def test_this_machine_is_detected_without_failing():
    assert all(profile.name for profile in catalog.detect_local_devices())


def test_a_misspelt_field_is_told_from_the_one_it_stands_for(tmp_path):
    shipped = (data_root() / "device_profiles" / "gpu" / "t4.yaml").read_text()
    path = tmp_path / "mine.yaml"
    path.write_text(shipped.replace("\nsm_count:", "\nsm_cout:"))
    with pytest.raises(ProfileError, match=r"sm_cout: .*did you mean sm_count"):
        load_device_file(path)


def test_forgetting_leaves_no_cache_filled():
    accelsim.compare(["lenet-5"], ["t4", "tpu-v4", "epyc-7763"])
    wrappers = [one for one in gc.get_objects() if type(one) is _lru_cache_wrapper]
    own = [one for one in wrappers if str(one.__module__).startswith("accelsim")]
    assert sum(one.cache_info().currsize > 0 for one in own) > 10
    catalog.clear_cache()
    assert not [one.__qualname__ for one in own if one.cache_info().currsize]

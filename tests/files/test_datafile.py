"""The reader of data files: what it accepts, what it refuses, and that only `ProfileError` ever
escapes.
"""

import contextlib
import json
import math
import tracemalloc
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from accelsim.errors import ProfileError
from accelsim.files.datafile import (
    MAX_BYTES,
    MAX_DEPTH,
    data_root,
    parse_json,
    parse_yaml,
    read_json,
    read_mapping,
    read_yaml,
    validation_problems,
)
from accelsim.hardware.profile import parse_device

KEYS = st.text("abcdefghijklmnopqrstuvwxyz_", min_size=1, max_size=8)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**62), 2**62)
    | st.floats(allow_nan=False, allow_infinity=False)
)
SCALARS |= st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), max_size=12)
TREES = st.dictionaries(
    KEYS,
    st.recursive(
        SCALARS,
        lambda t: st.lists(t, max_size=4) | st.dictionaries(KEYS, t, max_size=4),
        max_leaves=12,
    ),
)


@settings(max_examples=80, deadline=None)
@given(TREES)
def test_json_written_by_the_standard_library_is_read_back(tree):
    assert parse_json(json.dumps(tree)) == tree


@settings(max_examples=80, deadline=None)
@given(TREES)
def test_json_is_yaml(tree):
    assert parse_yaml(json.dumps(tree, ensure_ascii=False)) == tree


def test_scalars_follow_the_core_schema():
    text = (
        "a: 1\nb: -2.5\nc: 1e9\nd: yes\ne: 2024-01-31\nf: '3'\ng: null\nh: true\ni: ~\nj: "
        ".5\nk: 0x10\n1: x\nl: 1_000\n"
    )
    expected = {
        "a": 1,
        "b": -2.5,
        "c": 1e9,
        "d": "yes",
        "e": "2024-01-31",
        "f": "3",
        "g": None,
        "h": True,
    }
    assert parse_yaml(text) == {
        **expected,
        "i": None,
        "j": 0.5,
        "k": "0x10",
        "1": "x",
        "l": "1_000",
    }


REFUSED = {
    "a: 1\na: 2": "line 2: duplicate key 'a'",
    "x:\n  - {b: 1, b: 2}": "line 2, x.0: duplicate key 'b'",
    "a: .nan": "line 1, a: '.nan' is not a finite number",
    "a: -.inf": "not a finite number",
    "a: 1\nb: 1e400": "line 2, b: '1e400' is not a finite number",
    "a: 123456789012345678901": "does not fit in 64 bits",
    "a: &x 1": "anchors are not allowed",
    "a: &x [1]\nb: *x": "anchors are not allowed",
    "a: !!python/object/apply:os.system [x]": "tag",
    "a: !foo 1": "tag",
    "<<: {a: 1}": "merge keys",
    "a: 1\n---\nb: 2": "second document",
    "- 1": "expected 'key: value' entries",
    "": "found nothing",
    "just text": "found a str",
    "a: [1": "not valid YAML",
    "a: b: c": "not valid YAML",
    "\ta: 1": "not valid YAML",
    "? [1, 2]\n: 3": "a key must be text",
    "? {a: 1}\n: 3": "a key must be text",
    "a: " + "[" * (MAX_DEPTH + 1): "nested deeper",
    "a: " + "[" * 100_000: "nested deeper",
    "a:\n" + "\n".join("  " * i + "- " for i in range(1, 60)): "nested deeper",
    "a: \x07": "control characters",
}


@pytest.mark.parametrize("text", REFUSED)
def test_yaml_is_refused_with_the_line_and_reason(text):
    with pytest.raises(ProfileError) as caught:
        parse_yaml(text, "file.yaml")
    assert REFUSED[text] in str(caught.value)
    assert str(caught.value).startswith("file.yaml: line ")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"a": 1, "a": 2}', "duplicate key 'a'"),
        ('{"a": NaN}', "not a finite number"),
        ('{"a": -Infinity}', "not a finite number"),
        ('{"a": 1e999}', "not a finite number"),
        ('{"a": 123456789012345678901}', "64 bits"),
        ('{"a": ' + "9" * 5000 + "}", "64 bits"),
        ("[" * 100_000, "nested deeper"),
        ('{"a":' * 40 + "1" + "}" * 40, "nested deeper"),
        ("[1]", "found a list"),
        ("", "not valid JSON"),
        ('{"a": 1,\n"b" 2}', "line 2: not valid JSON"),
    ],
)
def test_json_is_refused_with_the_reason(text, reason):
    with pytest.raises(ProfileError, match=reason):
        parse_json(text)


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=200))
def test_arbitrary_text_raises_nothing_else(text):
    for parse in (parse_yaml, parse_json):
        with contextlib.suppress(ProfileError):
            assert isinstance(parse(text), dict)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                "a",
                ":",
                " ",
                "-",
                "[",
                "]",
                "{",
                "}",
                "\n",
                "  ",
                "&x",
                "*x",
                "!t",
                "'",
                '"',
                "1",
                "|",
                ">",
                "#",
                "?",
                ",",
                "%",
            ]
        ),
        max_size=60,
    )
)
def test_yaml_like_text_raises_nothing_else(parts):
    text = "".join(parts)
    try:
        found = parse_yaml(text)
    except ProfileError:
        return
    strings = yaml.load(
        text, Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    )  # (scalars as text: the same tree)
    assert set(found) == set(strings)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=200))
def test_arbitrary_bytes_raise_nothing_else(tmp_path_factory, raw):
    path = tmp_path_factory.mktemp("raw") / "file.yaml"
    path.write_bytes(raw)
    with contextlib.suppress(ProfileError):
        assert isinstance(read_yaml(path), dict)


def test_files_that_cannot_be_read_are_profile_errors(tmp_path):
    with pytest.raises(ProfileError, match="cannot be read"):
        read_mapping(tmp_path / "missing.yaml")
    with pytest.raises(ProfileError, match="cannot be read"):
        read_mapping(tmp_path)
    with pytest.raises(ProfileError, match="cannot be read"):
        read_mapping(Path("nul\0byte.yaml"))
    (tmp_path / "latin.yaml").write_bytes(b"a: 1\nb: caf\xe9\n")
    with pytest.raises(ProfileError, match="line 2: not UTF-8"):
        read_yaml(tmp_path / "latin.yaml")


def test_a_huge_file_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "huge.yaml"
    with path.open("wb") as stream:
        stream.truncate(2_000_000_000)
    tracemalloc.start()
    try:
        with pytest.raises(ProfileError, match="larger than"):
            read_yaml(path)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 4 * MAX_BYTES


def test_the_limit_on_size_is_the_callers(tmp_path):
    path = tmp_path / "file.json"
    path.write_text(json.dumps({"a": "x" * 2000}))
    assert read_json(path, max_bytes=10_000) == {"a": "x" * 2000}
    with pytest.raises(ProfileError, match="larger than 1,000 bytes"):
        read_json(path, max_bytes=1000)


def test_the_suffix_chooses_the_format(tmp_path):
    (tmp_path / "a.json").write_text('{"a": 1}')
    (tmp_path / "a.yaml").write_text("a: 1")
    (tmp_path / "bad.json").write_text("a: 1")
    assert read_mapping(tmp_path / "a.json") == read_mapping(tmp_path / "a.yaml") == {"a": 1}
    with pytest.raises(ProfileError):
        read_mapping(tmp_path / "bad.json")


def test_validation_problems_name_line_and_field_as_the_file_spells_them(tmp_path):
    path = tmp_path / "gpu.yaml"
    path.write_text(
        "class: gpu\nname: x1\ntitle: X1\nvendor: V\nyear: '2020'\narchitecture: A1\n"
        "matrix_tflop_per_s:\n  fp16: {value: -3, source: abc}\n  fp99: {value: 3, source: abc}\n"
        "memory:\n  name: HBM\n  capacity_gb: {value: 80}\n"
        "power: {limit_w: {value: .5, source: abc}}\n"
        "on_chip:\n  - name: L2\n    capacity_mib: {value: x, source: abc}\nlanes: 3\n"
    )
    with pytest.raises(ValidationError) as caught:
        parse_device(read_mapping(path))
    problems = "\n".join(validation_problems(path, caught.value))
    assert "line 5, year: input should be a valid integer (got '2020')" in problems
    assert "line 8, matrix_tflop_per_s.fp16.value: input should be greater than 0" in problems
    assert "line 9, matrix_tflop_per_s.fp99: unknown dtype 'fp99'" in problems
    assert "line 12, memory.capacity_gb.source: field required" in problems
    assert (
        "line 16, on_chip.0.capacity_mib.value: input should be a valid number (got 'x')"
        in problems
    )
    assert "line 17, lanes: extra inputs are not permitted" in problems
    assert "sm_count: field required" in problems


def test_the_data_root_holds_the_three_folders():
    assert {path.name for path in data_root().iterdir()} >= {"device_profiles"}
    assert math.isfinite(len(list((data_root() / "device_profiles").iterdir())))


def test_an_installed_wheels_data_folder_is_preferred(tmp_path, monkeypatch):
    (tmp_path / "_data" / "device_profiles").mkdir(parents=True)
    monkeypatch.setattr("accelsim.files.datafile.__file__", str(tmp_path / "files" / "datafile.py"))
    assert data_root.__wrapped__() == tmp_path / "_data"


def test_missing_data_folders_are_reported(tmp_path, monkeypatch):
    file = tmp_path / "package" / "files" / "datafile.py"
    monkeypatch.setattr("accelsim.files.datafile.__file__", str(file))
    with pytest.raises(ProfileError, match="install accelsim again"):
        data_root.__wrapped__()

"""Lines of engines and trainers: read, judged against dated lists, written again."""

from __future__ import annotations

import json
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelsim.errors import InputError, InvalidValueError, UnknownNameError
from accelsim.handover.launchers import KINDS, launcher, launchers
from accelsim.handover.line import read_line, write_line

ENGINES = ("vllm", "sglang", "tensorrt-llm")
TEXTS = {"flag": "", "int": "3", "float": "0.5", "json": "{}", "str": "a b", "list": "x"}


@pytest.mark.parametrize("name", launchers())
def test_every_list_is_dated_and_has_what_its_settings_name(name):
    program = launcher(name)
    versions = [one.version for one in program.versions]
    assert all(one.date[:2] == "20" and one.source for one in program.versions)
    for option in program.options.values():
        assert option.kind in KINDS
        assert set(option.versions) <= set(versions)
        assert bool(option.choices) <= (option.kind in {"choice", "int", "str"})
    for meaning in program.means.values():
        one = program.options[meaning.option]
        assert one.name == meaning.option
        assert set(meaning.values) <= set(one.choices) or not one.choices or name == "vllm"


@st.composite
def lines(draw):
    program = launcher(draw(st.sampled_from(ENGINES)))
    newest = program.versions[-1].version
    known = {
        one.name: one
        for one in program.options.values()
        if not one.versions or newest in one.versions
    }
    words = program.begins[0].split()
    words += ["org/model"] if program.takes_model else [program.model, "org/model"]
    for name in draw(st.lists(st.sampled_from(sorted(known)), unique=True, max_size=8)):
        one = known[name]
        if name == program.model:
            continue
        spelled = draw(st.sampled_from((one.name, *(a for a in one.also if a[:2] == "--"))))
        text = draw(st.sampled_from(one.choices)) if one.choices else TEXTS[one.kind]
        words += [spelled, text] if text else [spelled]
    return shlex.join(words)


@pytest.mark.law
@given(text=lines())
def test_a_line_of_listed_options_fits_and_reads_the_same_once_written(text):
    line = read_line(text)
    assert line.problems == ()
    again = read_line(str(line))
    assert again == line
    assert str(again) == str(line)


@pytest.mark.law
@given(
    name=st.sampled_from(ENGINES),
    tp=st.sampled_from([1, 2, 4, 8]),
    memory=st.floats(0.1, 0.99),
    seqs=st.integers(1, 4096),
    context=st.integers(128, 200_000),
)
def test_settings_are_read_back_from_the_line_that_they_write(name, tp, memory, seqs, context):
    said = {
        "tp": tp,
        "memory_fraction": round(memory, 4),
        "max_seqs": seqs,
        "max_context": context,
        "precision": "fp8",
        "kv_format": "fp8",
    }
    program = launcher(name)
    line = write_line(program, said, "org/model")
    assert line.problems == read_line(str(line)).problems == ()
    read = read_line(str(line)).settings
    assert read == {field: value for field, value in said.items() if field in program.means}


@pytest.mark.parametrize(
    ("text", "option", "words"),
    [
        ("vllm serve m --tensor-paralel-size 2", "--tensor-paralel-size", "--tensor-parallel-size"),
        ("vllm serve m --swap-space 4", "--swap-space", "0.9.2, 0.12.0"),
        ("vllm serve m --max-num-seqs many", "--max-num-seqs", "whole number"),
        ("vllm serve m --kv-cache-dtype fp7", "--kv-cache-dtype", "Did you mean fp8"),
        ("vllm serve m --max-num-seqs", "--max-num-seqs", "has no value"),
        ("vllm serve m --hf-overrides {x", "--hf-overrides", "not JSON"),
        ("python -m sglang.launch_server --tp-sise 2", "--tp-sise", "--tp-size"),
        ("trtllm-serve m --ep_sise 2", "--ep_sise", "--ep_size"),
        ("torchrun --nproc_per_node 8", "script", "starts nothing"),
    ],
)
def test_what_is_wrong_is_named_with_what_to_do(text, option, words):
    problem = read_line(text).problems[0]
    assert problem.option == option
    assert words in f"{problem.problem} {problem.remedy}"


def test_an_option_is_of_the_version_that_is_asked():
    assert read_line("vllm serve m --swap-space 4", "0.10").problems == ()
    assert read_line("python -m sglang.launch_server --pp-size 2", "0.4.6").problems
    old = read_line("trtllm-serve m --ep_size 8", "0.18.2").problems[0]
    assert old.problem == "tensorrt-llm 0.18.2 does not have it"


def test_numbers_may_be_scaled_where_the_program_reads_them_so():
    assert read_line("vllm serve m --max-model-len 32k").settings["max_context"] == 32_000
    assert read_line("vllm serve m --max-model-len 32K").settings["max_context"] == 32_768
    assert read_line("python -m sglang.launch_server --context-length 32k").problems


def test_spellings_switches_and_assignments_of_a_shell():
    line = read_line("A=1 vllm serve m \\\n -tp=4 --no_enable_prefix_caching # two copies\n")
    assert line.environment == ("A=1",)
    assert line.settings == {"tp": 4, "prefix_cache": False}
    assert str(line) == "A=1 vllm serve m --tensor-parallel-size 4 --no-enable-prefix-caching"


def test_keys_of_json_may_stand_apart():
    text = "vllm serve m -O2 --speculative-config.method mtp --speculative_config.a.b=3"
    line = read_line(text)
    assert line.problems == ()
    assert json.loads(line.options["--speculative-config"]) == {"method": "mtp", "a": {"b": 3}}
    assert read_line(str(line)) == line
    assert read_line("vllm serve m --tensor-parallel-size.x 3").problems


@given(
    start=st.sampled_from([one.begins[0] for one in launchers().values()]),
    rest=st.text(alphabet=st.characters(codec="utf-8"), max_size=60),
)
def test_whatever_follows_is_read_or_refused(start, rest):
    try:
        line = read_line(f"{start} {rest}")
    except InputError:
        return
    assert str(line)


def test_torchrun_starts_a_trainer():
    line = read_line(
        "torchrun --nnodes=2 --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size 4"
        " --sequence-parallel --my-own 1"
    )
    assert line.settings == {"nodes": "2", "node_devices": "8"}
    assert line.script.settings == {"tp": 4, "sp": True}
    assert line.script.problems == ()  # the list of Megatron-LM is an excerpt
    assert read_line(str(line)) == line
    assert read_line("torchrun --nproc_per_node 2 mine.py --x 1").script is None


@pytest.mark.parametrize("text", ["", "ls -l", "vllm", "vllm serve 'm", "deepspeed x.py"])
def test_what_is_no_line_is_refused(text):
    with pytest.raises(InvalidValueError, match="line"):
        read_line(text)


def test_an_unknown_version_or_program_is_refused():
    with pytest.raises(UnknownNameError, match="version of vllm"):
        read_line("vllm serve m", "newest")
    with pytest.raises(UnknownNameError, match="program"):
        launcher("vlm")

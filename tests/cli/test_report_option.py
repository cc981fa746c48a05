"""``--report`` writes a page beside the result, and refuses bad places before any work."""

from __future__ import annotations

import pytest
from typer.main import get_command

from accelsim.cli.app import command_tree

ESTIMATE = ("estimate", "resnet-50", "--device", "t4", "--batch", "8")
SERVE = ("serve", "resnet-50", "--device", "t4", "--rate", "50", "--requests", "20")
TRAIN = ("train", "resnet-50", "--device", "t4", "--gpus", "2")
OFFERS = ("offers", "list", "--device", "t4")
COMPARE = ("compare", "resnet-50", "--devices", "t4,v100-sxm2-16gb", "--batch", "1")


@pytest.mark.parametrize("command", [ESTIMATE, COMPARE, SERVE, TRAIN, OFFERS])
def test_the_page_says_how_to_make_it_again(run, tmp_path, command):
    path = tmp_path / "it's.html"
    ran = run(*command, "--report", path)
    assert ran.code == 0
    assert ran.out == run(*command).out
    text = path.read_text(encoding="utf-8")
    assert f"accelsim {' '.join(command)} --report" in text
    assert f"wrote {path}" in ran.err


def test_bad_places_are_refused_before_any_work(refused, tmp_path, monkeypatch):
    import accelsim.estimation.estimate as module

    monkeypatch.setattr(module, "estimate", lambda *_, **__: pytest.fail("the estimate ran"))
    kept = tmp_path / "kept.html"
    kept.write_text("mine", encoding="utf-8")
    for command in (ESTIMATE, COMPARE):
        assert "--force" in refused(*command, "--report", kept)
        assert "no folder" in refused(*command, "--report", tmp_path / "no" / "r.html")
    same = tmp_path / "new.html"
    assert "no page beside" in refused(*ESTIMATE, "--report", same, "--out", same)
    assert kept.read_text(encoding="utf-8") == "mine"


def test_a_page_has_no_other_formats_name(refused, tmp_path):
    saved_text = tmp_path / "c.json"
    for name in ("r.json", "r.pdf"):
        assert "ending in .html" in refused(*ESTIMATE, "--report", tmp_path / name)
        assert "ending in .html" in refused("report", saved_text, "--out", tmp_path / name)
        assert not (tmp_path / name).exists()


def test_missing_libraries_are_named_before_any_work(refused, tmp_path, monkeypatch):
    import accelsim.cli.report_file as module

    monkeypatch.setattr(module, "find_spec", lambda name: None if name == "plotly" else object())
    assert "accelsim[report]" in refused(*ESTIMATE, "--report", tmp_path / "r.html")


def saved(run, tmp_path, command, name):
    path = tmp_path / name
    run(*command, "--format", "json", "--out", path)
    return path


def test_saved_results_make_the_same_page(run, tmp_path):
    stored = saved(run, tmp_path, COMPARE, "c.json")
    run("report", stored, "--out", tmp_path / "r.html")
    run(*COMPARE, "--report", tmp_path / "live.html")
    again, live = (
        (tmp_path / name).read_text(encoding="utf-8").split('id="pareto-0"')[1].split("</table>")[0]
        for name in ("r.html", "live.html")
    )
    assert again == live


def test_results_of_several_kinds_share_a_page(run, tmp_path):
    files = [saved(run, tmp_path, one, f"{i}.json") for i, one in enumerate([SERVE, TRAIN])]
    assert run("report", *files, "--out", tmp_path / "r.html").code == 0
    text = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "<h1>2 results</h1>" in text
    assert 'id="times-1"' in text
    assert 'id="memory-2"' in text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no JSON"),
        ("3", "no result"),
        ("[1, 2]", "no result"),
        ('{"kind": ' + "[" * 200 + "]" * 200 + "}", "deep"),
        ('{"kind": "serving", "schema_version": 7, "provenance": {"version": "9.9"}}', "9.9"),
        ('{"kind": "serving", "schema_version": 1}', "is not as this version writes it"),
    ],
)
def test_what_is_no_result_of_this_version_is_refused(refused, tmp_path, text, said):
    (tmp_path / "x.json").write_text(text, encoding="utf-8")
    assert said in refused("report", tmp_path / "x.json", "--out", tmp_path / "r.html")
    assert not (tmp_path / "r.html").exists()


def test_empty_results_say_so(run, tmp_path):
    (tmp_path / "x.json").write_text("[]", encoding="utf-8")
    run("report", tmp_path / "x.json", "--out", tmp_path / "r.html")
    assert "The result is empty." in (tmp_path / "r.html").read_text(encoding="utf-8")


def test_files_that_cannot_be_read_are_refused(refused, tmp_path):
    out = tmp_path / "r.html"
    assert "No such file" in refused("report", tmp_path / "none.json", "--out", out)
    assert "no folder of a sweep" in refused("report", tmp_path, "--out", out)


def commands(group, name=""):
    """Commands with their options, those of groups among them."""
    options = {flag for parameter in group.params for flag in parameter.opts}
    if "--version" not in options and len(options) > len({"--help"}):
        yield name, options
    for word, command in getattr(group, "commands", {}).items():
        yield from commands(command, f"{name} {word}".strip())


def test_every_command_takes_a_page_and_none_replaces_a_file_unasked():
    found = dict(commands(get_command(command_tree())))
    assert {name for name, options in found.items() if "--report" not in options} == {
        "init",  # writes a scenario
        "report",  # writes nothing else
        "ui",  # shows pages
    }
    assert [name for name, options in found.items() if "--force" not in options] == ["ui"]

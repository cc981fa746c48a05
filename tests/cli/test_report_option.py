"""``--report`` writes a page beside the result, and refuses bad places before any work."""

from __future__ import annotations

import pytest

ESTIMATE = ("estimate", "resnet-50", "--device", "t4", "--batch", "8")
COMPARE = ("compare", "resnet-50", "--devices", "t4,v100-sxm2-16gb", "--batches", "1")


@pytest.mark.parametrize("command", [ESTIMATE, COMPARE])
def test_the_page_says_how_to_make_it_again(run, tmp_path, command):
    path = tmp_path / "it's.html"
    ran = run(*command, "--report", path)
    assert ran.code == 0
    assert ran.out == run(*command).out
    text = path.read_text(encoding="utf-8")
    assert f"accelsim {' '.join(command)} --report" in text
    assert f"wrote {path}" in ran.err


def test_bad_places_are_refused_before_any_work(refused, tmp_path, monkeypatch):
    import accelsim.planning.estimate as module

    monkeypatch.setattr(module, "estimate", lambda *_, **__: pytest.fail("the estimate ran"))
    kept = tmp_path / "kept.html"
    kept.write_text("mine", encoding="utf-8")
    for command in (ESTIMATE, COMPARE):
        assert "--force" in refused(*command, "--report", kept)
        assert "no folder" in refused(*command, "--report", tmp_path / "no" / "r.html")
    same = tmp_path / "new.html"
    assert "another file" in refused(*ESTIMATE, "--report", same, "--out", same)
    assert kept.read_text(encoding="utf-8") == "mine"


def test_missing_libraries_are_named_before_any_work(refused, tmp_path, monkeypatch):
    import accelsim.cli.report_file as module

    monkeypatch.setattr(module, "find_spec", lambda name: None if name == "jinja2" else object())
    assert "accelsim[report]" in refused(*ESTIMATE, "--report", tmp_path / "r.html")

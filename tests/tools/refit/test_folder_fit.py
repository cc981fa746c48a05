"""Fits to a folder's operator rows, and how they score on the shapes kept back."""

from functools import partial

import pytest

from accelsim.scoreboard import validate
from accelsim.scoreboard.split import held_out_mask
from tests.tools.scoreboard.test_unseen_devices import MODELS, data, made_up_rows, shapes
from tools.refit import folder_fit
from tools.refit.__main__ import main
from tools.refit.device_fit import DeviceFit

__all__ = ["data"]  # a fixture
fitted = partial(validate, tier="fitted", fits_of=folder_fit.FolderFits)


def test_a_device_without_an_overlay_is_fitted_to_the_folder_and_scored_on_the_rest(data):
    sizes = shapes()
    labels = f"L4,gpt3_27,inf,{MODELS['gpt3_27'][0]},2,900\n"
    folder = data(made_up_rows("L4", sizes) + made_up_rows("MI210", sizes), labels)
    operators, models = fitted(["gpu-operators", "gpu-models"], folder).suites
    kept = held_out_mask([f"linear 1 {m} {n} {k}" for m, n, k in sizes.tolist()])
    assert operators.rows_asked == operators.figures.rows_answered == 2 * kept.sum()
    assert operators.rows_used_in_fit == 2 * (~kept).sum()
    assert operators.tier == models.tier == "fitted"
    assert operators.figures.median_ape_fraction < 0.03
    before = validate(["gpu-operators"], folder, "spec").suites[0].figures
    assert before.median_ape_fraction > 2 * operators.figures.median_ape_fraction
    assert f"fitted to {(~kept).sum():,} operator rows of this folder" in operators.notes["l4"]
    assert models.rows_used_in_fit == 0
    assert models.figures.rows_answered == 1


def test_an_overlay_of_kernel_tables_gives_way_to_a_fit_of_such_rows(data):
    (score,) = fitted(["gpu-operators"], data(made_up_rows("H100", shapes()))).suites
    assert "of this folder" in score.notes["h100-sxm-80gb"]


def test_a_device_with_its_own_overlay_is_not_fitted_again(data, monkeypatch):
    monkeypatch.setattr(
        folder_fit, "fit_device", lambda *_args, **_options: pytest.fail("fitted again")
    )
    (score,) = fitted(["gpu-operators"], data(made_up_rows("V100", shapes()))).suites
    assert score.notes["v100-pcie-32gb"].startswith("fitted to")


def test_too_few_rows_are_no_fit(data, capsys):
    folder = data(made_up_rows("L4", shapes(100)), f"L4,gpt3_27,inf,{MODELS['gpt3_27'][0]},2,900\n")
    assert main(["--data", str(folder), "--score-fits"]) == 0
    assert "no overlay calibration/fitted/l4.yaml" in capsys.readouterr().out


def test_a_fit_that_does_not_converge_is_refused_by_name(data, monkeypatch):
    real = folder_fit.fit_device
    monkeypatch.setattr(
        folder_fit, "fit_device", lambda *a, **o: DeviceFit(real(*a, **o).overlay, ("gemm",))
    )
    (score,) = fitted(["gpu-operators"], data(made_up_rows("L4", shapes()))).suites
    assert list(score.refused) == ["fit to the folder's rows did not converge: gemm"]

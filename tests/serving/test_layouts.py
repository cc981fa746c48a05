"""Layouts of a model on a device."""

import accelsim
from accelsim.estimation.options import RunOptions
from accelsim.files.datafile import data_root
from accelsim.serving.layouts import Layouts
from accelsim.serving.loads.arrivals import Arrivals
from accelsim.serving.options import ServingOptions

LOAD = Arrivals(rate_per_s=1.0, prompt="512", output="64", requests=20)


def planned(name):
    layouts = Layouts(name, "h100-sxm-80gb", RunOptions(), LOAD, 1.0)
    return layouts.of(ServingOptions()).plan


def test_equal_questions_share_their_step_times():
    assert planned("llama-3.2-1b").steps is planned("llama-3.2-1b").steps


def test_a_model_whose_file_changed_is_planned_anew(tmp_path):
    text = (data_root() / "workloads/llama-3.2-1b.yaml").read_text()
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    layers = accelsim.workload(str(path)).parameters.layers
    whole = planned(str(path))
    path.write_text(text.replace(f"layers: {layers}\n", f"layers: {layers // 2}  # half\n"))
    half = planned(str(path))
    assert half.run.workload.parameters.layers == layers // 2
    assert half.blocks > whole.blocks

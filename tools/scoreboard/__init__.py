"""The scoreboard's suites over tables that do not ship with accelsim.

``python -m tools.scoreboard SUITE --data DIR`` scores them beside those that ship, with the options
and the output of ``accelsim validate``.
"""

from pathlib import Path

from accelsim.scoreboard.left_out import hand_in
from accelsim.scoreboard.suite import add_modules

hand_in(Path(__file__).parent / "data")

add_modules(
    f"{__name__}.{module}"
    for module in (
        "gpu_operators",
        "llm_serving",
        "published",
        "aiconfigurator_kernels",
        "systolic",
        "tpu_v1",
        "eyeriss",
        "dpu",
        "fpga_dataflow",
        "training_oracles",
        "training_collectives",
        "training_megatron",
        "training_frameworks",
        "training_mlperf",
        "serving_vidur",
        "serving_tokens",
        "serving_requests",
        "serving_energy",
        "serving_layers",
        "serving_mlperf",
        "power_cap",
    )
)

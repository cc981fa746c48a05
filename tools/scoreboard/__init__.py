"""The scoreboard's suites over tables that do not ship with accelsim.

``python -m tools.scoreboard SUITE --data DIR`` scores them beside those that ship, with the options
and the output of ``accelsim validate``.
"""

from accelsim.scoreboard.parameters import hand_in
from accelsim.scoreboard.suite import add_modules
from tools.scoreboard.left_out import LeftOut

hand_in(LeftOut())

add_modules(
    f"{__name__}.{module}"
    for module in (
        "gpu_operators",
        "published",
        "aiconfigurator_kernels",
        "systolic",
        "tpu_v1",
        "dpu",
        "fpga_dataflow",
        "training_memory",
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
        "fleet",
    )
)

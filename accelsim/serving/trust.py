"""How far figures of served language models may be off.

Steps of a replica have the spread of their operators. What a server adds to them (queues,
schedulers, lengths that a benchmark does not state) shows in measured systems alone: steps are no
surer than the times per further token of systems of their class of devices, format and kind of
model that were measured, steps with prompts no surer than times to the first token. Both ends of
that are simulated, so that waiting is sure where a replica has little to do and wide open near what
it can serve at most. No interval of a rate, an energy or a power is narrower than its residuals.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from accelsim.estimation.evidence import POWER_LOG_SIGMA, residual_log_sigma
from accelsim.estimation.likeness import Setting
from accelsim.frozen import frozen

if TYPE_CHECKING:
    from accelsim.estimation.run import ResolvedRun
    from accelsim.serving.steps.step_times import StepTimes

#: Measured figures that a server's own are compared with, by the start of their names.
_FIGURES = {
    "tpot_s": ("tpot",),
    "itl_s": ("tpot",),
    "e2e_s": ("tpot",),
    "energy_j": ("energy",),
    "average_power_w": ("power",),
    "peak_power_w": ("power",),
}
#: Figures that were measured with prompts and further tokens apart, too.
_SPLIT = frozenset({"ttft", "tpot"})


@frozen
class ServedRun:
    """A served model, as the spread of its figures takes it.

    Attributes:
        run: The model on one rank.
        is_split: Whether prompts and further tokens run on replicas of their own.
    """

    run: ResolvedRun
    is_split: bool = False

    def setting(self, figure: str) -> Setting:
        """What a figure is like: "ttft", "tpot", "energy" (per token) or "power"."""
        mode = "split-serving" if self.is_split and figure in _SPLIT else "serving"
        return Setting.of(f"{mode}-{figure}", self.run.precision, "generation")

    def log_sigma(self, figure: str) -> float:
        """Spread of ln(measured / predicted) of a figure over systems like it; 0 where none is
        known, and for batches that are estimates, which have their intervals.
        """
        if not self.run.workload.autoregressive:
            return 0.0
        device_class = str(self.run.device.device_class)
        measured = residual_log_sigma(device_class, self.setting(figure), self.run.spreads)
        return max(measured, POWER_LOG_SIGMA) if figure == "power" else measured

    def common_log_sigma(self, steps: StepTimes) -> float:
        """Spread of what all steps have in common, no less than that of measured times per token; 0
        for steps that are given.
        """
        common = steps.log_sigma * math.sqrt(steps.common_fraction)
        return max(common, self.log_sigma("tpot")) if steps.log_sigma else 0.0

    def prompt_log_sigma(self, steps: StepTimes) -> float:
        """Spread of steps with prompts, no less than that of measured times to the first token of
        servers that have room; 0 for steps that are given.
        """
        common = self.common_log_sigma(steps)
        return max(common, self.log_sigma("ttft")) if steps.log_sigma else 0.0

    def least_log_sigma(self, name: str) -> float:
        """Least spread of a result's figure ("ttft_s.p99", "energy_j_per_token"); 0 where none like
        it was measured.
        """
        start = name.partition(".")[0].removesuffix("_per_token")
        return max((self.log_sigma(each) for each in _FIGURES.get(start, ())), default=0.0)

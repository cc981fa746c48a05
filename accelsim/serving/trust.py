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

from accelsim.confidence.hierarchy import Correction
from accelsim.estimation.evidence import POWER_LOG_SIGMA, residual_log_sigma
from accelsim.estimation.likeness import Setting
from accelsim.frozen import frozen

if TYPE_CHECKING:
    from accelsim.estimation.learned import System
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
#: Phases that figures are of.
_PHASES = {"tpot": "decode", "ttft": "prompt"}
#: Figures that were measured with prompts and further tokens apart, too.
_SPLIT = frozenset({"ttft", "tpot"})


@frozen
class ServedRun:
    """A served model, as the spread of its figures takes it.

    Attributes:
        run: The model on one rank.
        is_split: Whether prompts and further tokens run on replicas of their own.
        engine_name: Engine and version; empty where the user's own runs say nothing of it.
    """

    run: ResolvedRun
    is_split: bool = False
    engine_name: str = ""

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
        measured = self._measured_log_sigma(figure)
        phase = _PHASES.get(figure)
        return measured if phase is None else self._corrected(phase, measured).log_sigma

    def _measured_log_sigma(self, figure: str) -> float:
        device_class = str(self.run.device.device_class)
        measured = residual_log_sigma(device_class, self.setting(figure), self.run.spreads)
        return max(measured, POWER_LOG_SIGMA) if figure == "power" else measured

    def _corrected(self, phase: str, log_sigma: float) -> Correction:
        """What the user's own runs make of a phase's times."""
        run = self.run
        if run.learned is None or not self.engine_name or not log_sigma:
            return Correction(0.0, log_sigma)
        return run.learned.correction(self.system(phase), log_sigma)

    def system(self, phase: str) -> System:
        """What a phase's times are of, as runs that were measured are told apart."""
        from accelsim.estimation.learned import System

        run, precision = self.run, self.setting("tpot").precision
        stack, _, version = self.engine_name.partition(" ")
        names = (run.device.whole_name, stack, version, precision, run.workload.architecture)
        return System(phase, *names, str(run.device.device_class), {})

    @property
    def learned_notes(self) -> tuple[str, ...]:
        """What to know of a correction by the user's own runs."""
        learned = self.run.learned
        return () if learned is None else learned.notes(map(self.system, ("decode", "prompt")))

    def correct(self, steps: StepTimes) -> StepTimes:
        """Steps that take what the user's own runs make of them."""
        if self.run.learned is None or not steps.log_sigma:
            return steps
        from accelsim.serving.steps.combined_steps import ScaledSteps

        phases = {"decode": self._prior(steps, "tpot"), "prompt": self._prior(steps, "ttft")}
        shifts = [self._corrected(phase, prior).shift for phase, prior in phases.items()]
        return ScaledSteps(steps, *map(math.exp, shifts))

    def _prior(self, steps: StepTimes, figure: str) -> float:
        """Spread of what all steps of a phase have in common, before runs of the user's own."""
        common = steps.log_sigma * math.sqrt(steps.common_fraction)
        figures = ("tpot",) if figure == "tpot" else ("tpot", "ttft")
        if not self.run.workload.autoregressive:
            return common
        return max(common, *(self._measured_log_sigma(figure_name) for figure_name in figures))

    def common_log_sigma(self, steps: StepTimes) -> float:
        """Spread of what all steps have in common, no less than that of measured times per token; 0
        for steps that are given.
        """
        if not steps.log_sigma:
            return 0.0
        common = steps.log_sigma * math.sqrt(steps.common_fraction)
        return max(self._corrected("decode", common).log_sigma, self.log_sigma("tpot"))

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
        return max((self.log_sigma(figure) for figure in _FIGURES.get(start, ())), default=0.0)

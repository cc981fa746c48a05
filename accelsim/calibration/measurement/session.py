"""The measuring loop: rounds over the suite within a time budget, every row saved as soon as it is
known.

A case that needs too much memory is halved and noted; one that this backend cannot run is skipped
by name. A reference operator is timed again and again between the cases: its spread is the
machine's own noise.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import torch

from accelsim.calibration.energy import Meter, find_meter
from accelsim.calibration.measurement.captured_rows import captured_row
from accelsim.calibration.measurement.case import Case
from accelsim.calibration.measurement.cuda import captured, rotated, tf32_products
from accelsim.calibration.measurement.operands import BUILDERS, OperandPool
from accelsim.calibration.measurement.operators import GRADIENT_OPERATORS, build_call, prepare
from accelsim.calibration.measurement.power import energy_of_graph
from accelsim.calibration.measurement.timing import Call, CpuTimer, CudaTimer, Timer, Timing
from accelsim.calibration.run_file import Measurement, RunFile
from accelsim.errors import OutputError
from accelsim.frozen import frozen
from accelsim.plain import Document

#: Dimensions that an out-of-memory case halves, in this order of preference.
_SHRINKABLE = ("batch", "rows", "m", "elements", "lookups", "parameters", "n")
#: What is timed again and again on a CPU, long enough that clock resolution does not show; on a
#: GPU, that launches do not.
REFERENCE = Case("gemm", "addmm", {"m": 256, "n": 1024, "k": 1024})
_GPU_REFERENCE = Case("gemm", "addmm", {"m": 4096, "n": 4096, "k": 4096}, threads=0)
_MOST_HALVINGS = 12
#: How the allocators of the CPU (Linux, Windows), of CUDA, cuBLAS and cuDNN say so.
_OUT_OF_MEMORY = (
    "out of memory",
    "can't allocate memory",
    "not enough memory",
    "cannot allocate memory",
    "alloc_failed",
)
_CHUNK = 120
#: What is overwritten between calls amid others: several second-level caches, well within a
#: last-level cache.
_SCRUBBED_BYTES = 6 * 2**20
#: Inputs up to this size are written again before each call; larger ones leave the inner caches
#: anyway.
_REWRITTEN_BYTES = 8 * 2**20
#: Families that have no context to run in, or whose entry from Python would pay more for it than
#: their kernels.
_WITHOUT_CONTEXT = frozenset({"framework", "transfer", "compiled"})


@frozen
class Progress:
    """Where a session stands; given to the caller after every case."""

    completed: int
    total: int
    remaining_s: float
    label: str


class Session:
    """Measures cases on one device.

    Args:
        device: Torch device name.
        run_file: Where rows go.
        rounds: Passes over the suite; the best of them counts.
        report: Called after every case.
        timer: Makes a timer for a thread count; chosen by the device unless given.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        device: str,
        run_file: RunFile,
        *,
        rounds: int = 2,
        report: Callable[[Progress], None] | None = None,
        timer: Callable[[int], Timer] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.device, self.run_file, self.rounds = device, run_file, rounds
        self._report = report or (lambda _: None)
        self._timer = timer or (CpuTimer if device == "cpu" else lambda _: CudaTimer(torch.cuda))
        self._clock = clock
        self._pool = OperandPool(device)
        self._scrubbed = torch.zeros(_SCRUBBED_BYTES // 4) if device == "cpu" else torch.zeros(0)
        self._reference: list[float] = []

    def measure(self, cases: Sequence[Case], budget_s: float) -> int:
        """Measure as many of the cases as the budget allows, round after round.

        Args:
            cases: In the order of their importance.
            budget_s: Wall time for all rounds of these.

        Returns:
            Rows written.
        """
        end = self._clock() + budget_s
        self._reference = []
        rounds_of = _rounds_done(self.run_file)
        written, threads = 0, torch.get_num_threads()
        try:
            for number in range(self.rounds):
                left = [case for case in cases if rounds_of[case.key] <= number]
                now = self._clock()
                pace = now + (end - now) / (self.rounds - number)
                written += self._round(left, number, pace, end)
        finally:
            torch.set_num_threads(threads)
            self._note_noise()
        return written

    def measure_energy(self, cases: Sequence[Case]) -> int:
        """Measure time and energy of cases of a GPU, a few seconds each, replayed in graphs.

        Args:
            cases: As `accelsim.calibration.measurement.power.power_suite` gives them.

        Returns:
            Rows with energy; none where the board's meter cannot be read.
        """
        meter = find_meter(self.device)
        if meter is None:
            self.run_file.append({"note": "energy", "skipped": "no meter of the board is readable"})
            return 0
        count = 0
        for case in cases:
            row = self._energy_row(meter, case)
            self.run_file.append(row)
            count += row.time_s is not None
        return count

    def _energy_row(self, meter: Meter, case: Case) -> Measurement:
        """Time and energy of a call of the case; that of one which cannot run says why."""
        try:
            with torch.no_grad(), tf32_products(torch, case.dtype == "tf32"):
                replay, count = captured(torch.cuda, self._rotated(case))
                reading = energy_of_graph(meter, replay, count)
        except Exception as error:  # noqa: BLE001  (the last resort: a line instead of a traceback)
            return _skipped(case, 0, f"{type(error).__name__}: {str(error)[:160]}")
        finally:
            _free(self.device)
        if reading is None:
            return _skipped(case, 0, "the board's meter could not be read")
        time_s, energy_j = reading
        return Measurement(case, time_s, 0.0, 0, {"energy_j": energy_j}, row=captured_row(case))

    def _round(self, cases: Sequence[Case], number: int, pace: float, end: float) -> int:
        """Measure each case once: by `pace` where that is possible, else as many as there are until
        `end`.

        A budget too short for repeats is better spent on further shapes.
        """
        written = 0
        for start in range(0, len(cases), _CHUNK):
            self._time_reference()
            for case in sorted(cases[start : start + _CHUNK], key=lambda case: case.threads):
                now = self._clock()
                if now >= end:
                    return written
                slot = max(0.0, pace - now) / (len(cases) - written)
                rows = self._rows(case, min(max(0.25 * slot, 0.004), 0.25), number)
                for row in rows:
                    self.run_file.append(row)
                if rows[0].skipped:
                    self._check_device(rows[0].skipped)
                written += 1
                self._report(Progress(written, len(cases), end - self._clock(), case.key))
        return written

    def _rows(self, case: Case, slot_s: float, number: int) -> list[Measurement]:
        """The case's measurement, and where it has a context the one amid others; that of a
        case during which the previous process ended says so, once.
        """
        if case.key == self.run_file.fatal_case:
            self.run_file.fatal_case = None
            return [_skipped(case, number, "the process ended while this case ran")]
        self.run_file.begin(case.key)
        try:
            timings, ran = self.time(case, slot_s)
            row = captured_row(ran)
        except Exception as error:  # noqa: BLE001  (the last resort: a line instead of a traceback)
            return [_skipped(case, number, f"{type(error).__name__}: {str(error)[:160]}")]
        if not timings[0].time_s > 0:  # nothing ran that the clock could see
            return [_skipped(ran, number, "the clock did not move forward")]
        shared: Document = {"reference_s": self._reference[-1]} if self._reference else {}
        if ran is not case:
            shared["shrunk_from"] = dict(case.shape)
        rows = []
        for timing, amid in zip(timings, (False, True), strict=False):
            details = {"minor_faults": timing.minor_faults, "undisturbed": timing.undisturbed}
            ran_case, noise = replace(ran, amid=amid), timing.noise_fraction
            rows.append(
                Measurement(ran_case, timing.time_s, noise, number, details | shared, row=row)
            )
        return rows

    def time(self, case: Case, slot_s: float) -> tuple[list[Timing], Case]:
        """Time one case, halving it as often as memory demands.

        Returns:
            The timing, on a CPU the one amid other operators too, and the case that was really run.
        """
        if case.operator not in BUILDERS:
            raise NotImplementedError(f"no builder for {case.operator}")
        for _ in range(_MOST_HALVINGS):
            try:
                return self._timed(case, slot_s), case
            except (MemoryError, RuntimeError) as error:
                smaller = _halved(case)
                if not _is_out_of_memory(error) or smaller is None:
                    raise
            # only here, past the handler, has the traceback let go of the operands
            _free(self.device)
            case = smaller
        raise MemoryError(f"{case.label} does not fit after {_MOST_HALVINGS} halvings")

    def _check_device(self, reason: str) -> None:
        """Ask whether the device still answers: after an illegal access every further call of a
        CUDA process fails.

        Raises:
            OutputError: If it does not.
        """
        try:
            _free(self.device)
            torch.ones(1, device=self.device).sum().item()
        except RuntimeError as error:
            raise OutputError(
                f"{self.device} does not answer any more after {reason} ({str(error)[:80]}). "
                "What was measured is kept; continue with --resume."
            ) from None

    def _timed(self, case: Case, slot_s: float) -> list[Timing]:
        if case.threads and case.threads != torch.get_num_threads():
            torch.set_num_threads(case.threads)
        with torch.set_grad_enabled(case.operator in GRADIENT_OPERATORS):
            if self.device != "cpu":
                with tf32_products(torch, case.dtype == "tf32"):
                    return [self._timed_on_gpu(case, slot_s)]
            prepared, timer = prepare(case, self._pool), self._timer(case.threads)
            timings = [timer.measure(prepared.calls, slot_s)]
            measure_amid = getattr(timer, "measure_amid", None)
            if measure_amid is not None and case.family not in _WITHOUT_CONTEXT:
                between = partial(self._other_work, prepared.inputs)
                timings.append(measure_amid(prepared.calls, between, slot_s))
            return timings

    def _other_work(self, inputs: Sequence[torch.Tensor]) -> None:
        """Overwrite the inner caches, then write small inputs again."""
        with torch.no_grad():
            self._scrubbed.add_(1.0)
            for x in inputs:
                if x.numel() * x.element_size() <= _REWRITTEN_BYTES:
                    x.mul_(1.0)

    def _timed_on_gpu(self, case: Case, slot_s: float) -> Timing:
        """Eager calls, or replays of a graph of many, compiled or not; no cache has the operands,
        but for transfers.
        """
        calls = self._rotated(case)
        timer = self._timer(case.threads)
        if case.execution == "eager":
            return timer.measure(calls, slot_s)
        replay, count = captured(torch.cuda, calls)
        return timer.measure([replay], slot_s).of_each(count)

    def _rotated(self, case: Case) -> list[Call]:
        """Calls of a case, each with operands of its own, which no cache has, but for transfers."""
        build = partial(build_call, case, self._pool)
        return [build()] if case.family == "transfer" else rotated(torch.cuda, self.device, build)

    def _time_reference(self) -> None:
        case = REFERENCE if self.device == "cpu" else _GPU_REFERENCE
        time_s = self._timed(case, 0.02)[0].time_s
        if time_s > 0:  # not where the clock stepped back
            self._reference.append(time_s)

    def _note_noise(self) -> None:
        """The reference operator's times and spread; absent where there is only one."""
        times = sorted(self._reference)
        if len(times) > 1:
            spread = times[len(times) // 2] / times[0] - 1.0
            note = {"note": "noise", "reference_s": self._reference, "spread_fraction": spread}
            self.run_file.append(note)


def _skipped(case: Case, number: int, reason: str) -> Measurement:
    return Measurement(case, None, 0.0, number, {}, skipped=reason)


def _rounds_done(run_file: RunFile) -> Counter[str]:
    """Rounds in which each case was measured already."""
    rounds: Counter[str] = Counter()
    for row in run_file.run.rows if run_file.run else ():
        if not row.case.amid:
            shape = row.details.get("shrunk_from") or row.case.shape
            rounds[replace(row.case, shape=shape).key] += 1
    return rounds


def _is_out_of_memory(error: BaseException) -> bool:
    text = str(error).lower()
    return isinstance(error, MemoryError) or any(message in text for message in _OUT_OF_MEMORY)


def _halved(case: Case) -> Case | None:
    name = next((name for name in _SHRINKABLE if case.shape.get(name, 1) > 1), None)
    if name is None:
        return None
    return replace(case, shape={**case.shape, name: case.shape[name] // 2})


def _free(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.empty_cache()

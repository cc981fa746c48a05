"""How large the house is, how fast its door opens, and how well its formulas are sourced: each
figure beside its bound; exits 1 if one that must hold does not.

Code tokens are Python's own (`tokenize`) without comments, docstrings and line structure. The bound
on the code is of what stood when it was set, before clusters, sharded lowering, bulk estimates,
training on many devices, serving, plans, stacks, quantised checkpoints, claims, sweeps and pages
were added. `ADDED` names the files none of which, in whole or in part, stood then; what was split
off an older file, or came back to the package, is old, and so is all that older files have grown
by, so that the figure is an upper bound. Processes are timed in CPU seconds, the least of several
runs, since other work on the machine can only add to them; ``import numpy`` beside them says how
fast the machine is now. Estimates of a calibrated CPU are timed with the overlay of the committed
run. ``python benchmarks/house.py``; ``--quick`` leaves out the wheel and a minute's calibration,
whose wall time other work on the machine stretches.
"""

from __future__ import annotations

import ast
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tokenize
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from startup import CLI, REFERENCES, RUNS, cpu_times_s, import_s, run_python

ROOT = Path(__file__).resolve().parents[1]
#: The overlay of the run that is committed.
COMMITTED_RUN = "amd-epyc-2cpu-aece85"
LAYOUT = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE),
    *(tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER),
}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
#: What a docstring that names its source has: a year, an identifier, a document, or its kind.
CITATION = re.compile(
    r"\b(?:19|20)\d\d\b|\bdoi\b|arxiv|et al\.|white ?paper|data ?sheet|\bestimate\b"
    r"|\b(?:UG|PG|DS|AN|WP|RFC|ISO|IEEE|JESD)[ -]?\d+",
    re.IGNORECASE,
)


#: Files of `accelsim/` that belong to what was added since the bound was set.
ADDED = re.compile(
    r"(claims|sensitivity|sweeps|onnx_capture)/|(cluster|stack)_catalog|(arguments|result)\.py"
    r"|(planning|simulation)/(training|serving|capacity)/|simulation/(columns|clock)"
    r"|planning/(batches|estimate_many|fitting|likeness|schedule|sharded_costs)"
    r"|cli/(claims|clusters|doctor|finished_suites|plan|report|results|schema|serve|stacks|sweep|train)[._]"
    r"|report/(calculator|capacity|changes|chart|claims|clusters|curves|markdown|operators|page|parts"
    r"|run_sections|saved|serving|stacks|timeline|trace|training|[a-z]+_page)[._]"
    r"|validation/(evidence|figure_rows|power_cap|published|served_|serving_|training_)"
    r"|economics/(bill|carbon|dates|feeds/sources)|hardware/(cluster|fabric|placement)"
    r"|workloads/(adapters|growth|lowering|sharding|sizes|checkpoints/quantization)"
    r"|workloads/families/(convnext|dual_encoder|linear_attention|modern_encoder|state_space)"
    r"|cost/(background|power_cap|stack)\.|calibration/(server|fit/power|measurement/(live_|power))"
)


class Figure(NamedTuple):
    """A figure, its bound, and whether missing the bound fails; None where it is not known here."""

    name: str
    value: float | None
    bound: float | None
    unit: str = ""
    is_floor: bool = False
    is_must: bool = True

    @property
    def holds(self) -> bool:
        """Whether the bound is kept, as far as the figure is known."""
        if self.value is None or self.bound is None:
            return True
        return self.value >= self.bound if self.is_floor else self.value <= self.bound


def docstring_lines(tree: ast.AST) -> set[int]:
    """Lines that docstrings take."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        if not isinstance(node, DOCUMENTED) or not node.body:
            continue
        first = node.body[0]
        value = first.value if isinstance(first, ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            lines.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return lines


def code_size(path: Path) -> tuple[int, int]:
    """Code tokens and code lines of a file."""
    source = path.read_text(encoding="utf-8")
    left_out = docstring_lines(ast.parse(source))
    tokens = [
        token.start[0]
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type not in LAYOUT and token.start[0] not in left_out
    ]
    return len(tokens), len(set(tokens))


def added_tokens(package: Path) -> int:
    """Code tokens of the files that `ADDED` names."""
    paths = package.rglob("*.py")
    return sum(
        code_size(path)[0] for path in paths if ADDED.match(path.relative_to(package).as_posix())
    )


def rooms(folder: Path) -> dict[str, tuple[int, int]]:
    """Code tokens and code lines by first folder, the largest first."""
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).parts
        found[parts[0] if len(parts) > 1 else "."].append(code_size(path))
    sums = {room: (sum(t for t, _ in s), sum(n for _, n in s)) for room, s in found.items()}
    return dict(sorted(sums.items(), key=lambda item: -item[1][0]))


def cited_share(*folders: Path) -> float:
    """Share of public functions whose docstring cites a source."""
    cited = total = 0
    for path in (path for folder in folders for path in folder.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                total += 1
                cited += bool(CITATION.search(ast.get_docstring(node) or ""))
    return cited / max(total, 1)


def tracked_bytes() -> int:
    """Size of the files that git tracks."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    return sum(path.stat().st_size for path in paths if path.is_file())


def wheel_bytes() -> int:
    """Size of a wheel of this tree."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder]
        subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
        return next(Path(folder).glob("*.whl")).stat().st_size


def calibrated_estimates() -> list[Figure]:
    """CPU times of one more estimate on this machine as if it were the one of the committed run:
    of a batch that was not asked before, and of one that was; the least of several.
    """
    sys.path.insert(0, str(ROOT))
    import accelsim

    def times_ms(batches: Iterable[int], mode: str) -> float:
        times = []
        for batch in batches:
            start = time.thread_time()
            accelsim.estimate("resnet-50", "local/cpu", batch=batch, mode=mode)
            times.append(time.thread_time() - start)
        return 1e3 * min(times[1:])

    shipped = ROOT / "calibration" / "fitted" / COMMITTED_RUN
    found = []
    with tempfile.TemporaryDirectory() as folder:
        fitted = Path(folder) / "accelsim" / "calibration" / "fitted" / "local"
        fitted.mkdir(parents=True)
        for suffix in (".yaml", ".kernels.json"):
            shutil.copyfile(f"{shipped}{suffix}", fitted / f"cpu{suffix}")
        os.environ["XDG_CONFIG_HOME"] = folder
        for mode, bound in (("inference", 10.0), ("training", None)):
            new_ms, known_ms = times_ms(range(1, RUNS + 2), mode), times_ms([1] * RUNS, mode)
            found.append(Figure(f"calibrated CPU, {mode}, new", new_ms, bound, "ms"))
            found.append(Figure(f"calibrated CPU, {mode}, again", known_ms, bound, "ms"))
    return found


def calibration_s() -> float | None:
    """Wall time of a calibration that measures for a minute; None where torch is not installed, or
    the machine is too busy to measure enough in it.
    """
    with tempfile.TemporaryDirectory() as folder:
        start = time.monotonic()
        try:
            run_python(*CLI, "calibrate", "--budget", "60s", "--despite-noise", "--out", folder)
        except subprocess.CalledProcessError:
            return None
        return time.monotonic() - start


def figures(*, is_quick: bool) -> list[Figure]:
    """All figures with their bounds."""
    source, tests = rooms(ROOT / "accelsim"), rooms(ROOT / "tests")
    (code, lines), (test_code, test_lines) = (
        [sum(column) for column in zip(*room.values(), strict=True)] for room in (source, tests)
    )
    print("\n".join(f"  {room:14} {size:8,} tokens" for room, (size, _) in source.items()))
    added = added_tokens(ROOT / "accelsim")
    print(
        f"  {'all':14} {code:8,} tokens, {added:,} of them in files added since the bound was set"
    )
    largest = next(iter(source.values()))[0]
    share = cited_share(ROOT / "accelsim" / "cost", ROOT / "accelsim" / "economics")
    help_text, estimate = (*CLI, "--help"), (*CLI, "estimate", "resnet50", "-d", "a100-sxm-80gb")
    processes = {**REFERENCES, "accelsim --help": help_text, "accelsim estimate": estimate}
    least_s = {name: times_s[0] for name, times_s in cpu_times_s(processes).items()}
    limits_s = {"accelsim --help": 0.1, "accelsim estimate": 0.4}
    return [
        Figure("code without what was added", code - added, 340_000, "tokens"),
        Figure("largest room", largest, 100_000, "tokens"),
        Figure("calibration", source["calibration"][0], 70_000, "tokens"),
        Figure("wheel", None if is_quick else wheel_bytes() / 1e6, 4.0, "MB"),
        Figure("checkout without .git", tracked_bytes() / 1e6, 12.0, "MB"),
        Figure("import accelsim", import_s(), 0.02, "s"),
        *(Figure(name, taken, limits_s.get(name), "s") for name, taken in least_s.items()),
        *calibrated_estimates(),
        Figure("calibrate --budget 60s, wall", None if is_quick else calibration_s(), 75.0, "s"),
        Figure("tokens a code line", code / lines, 9.5, is_must=False),
        Figure("tokens a line of tests", test_code / test_lines, 9.5, is_must=False),
        Figure("test tokens / source tokens", test_code / code, 0.75, is_floor=True, is_must=False),
        Figure("formulas that cite a source", 100 * share, 50, "%", is_floor=True, is_must=False),
    ]


def digits(value: float) -> int:
    """Digits behind the point that tell a value from its bound."""
    return 0 if value >= 1000 else 1 if value >= 10 else 3


def main() -> None:
    """Print the table; exit 1 if a figure that must hold does not."""
    found = figures(is_quick="--quick" in sys.argv)
    for figure in found:
        shown = (
            "not known here"
            if figure.value is None
            else f"{figure.value:,.{digits(figure.value)}f} {figure.unit}"
        )
        verdict = "ok" if figure.holds else "MISSED" if figure.is_must else "missed (a target)"
        sign = ">=" if figure.is_floor else "<="
        bound = (
            "" if figure.bound is None else f"{sign} {figure.bound:,g} {figure.unit:7} {verdict}"
        )
        print(f"{figure.name:32} {shown:>20}   {bound}".rstrip())
    sys.exit(any(figure.is_must and not figure.holds for figure in found))


if __name__ == "__main__":
    main()

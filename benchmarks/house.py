"""How large and how tidy the house is: each figure beside its bound; exits 1 if one that must hold
does not.

Code tokens are Python's own (`tokenize`) without comments, docstrings and line structure. McCabe's
number counts conditional expressions, and/or and comprehensions, too. Arrows run between rooms
(`accelsim/<room>/`) and circles between files; imports inside functions count, and those for types
alone. ``python benchmarks/house.py``; ``--base DIR`` also takes the CPU time of commands beside
that of another checkout, process by process in turn.
"""

from __future__ import annotations

import ast
import io
import os
import re
import resource
import subprocess
import sys
import tempfile
import tokenize
import tomllib
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
LAYOUT = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE),
    *(tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER),
}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.MatMult)
BRANCHES = (ast.If, ast.For, ast.While, ast.IfExp, ast.ExceptHandler, ast.comprehension)
#: What a docstring that names its source has: a year, an identifier, a document, or its kind.
CITATION = re.compile(
    r"\b(?:19|20)\d\d\b|\bdoi\b|arxiv|et al\.|white ?paper|data ?sheet|\bestimate\b"
    r"|\b(?:UG|PG|DS|AN|WP|RFC|ISO|IEEE|JESD)[ -]?\d+",
    re.IGNORECASE,
)
COMMANDS = {
    "accelsim --help": ("--help",),
    "accelsim estimate": ("estimate", "resnet-50", "-d", "a100-sxm-80gb"),
}
PAIRS = 10


class Figure(NamedTuple):
    """A figure, the bound that must hold, and the one that is aimed at."""

    name: str
    value: float
    must: float | None = None
    target: float | None = None
    is_floor: bool = False

    def holds(self, bound: float | None) -> bool:
        """Whether a bound is kept."""
        return bound is None or (self.value >= bound if self.is_floor else self.value <= bound)

    def line(self) -> str:
        """The figure beside its bounds."""
        digits = 0 if abs(self.value) >= 100 or self.value == int(self.value) else 2
        sign = ">=" if self.is_floor else "<="
        text = f"{self.name:44} {self.value:>12,.{digits}f}"
        for word, bound in (("must", self.must), ("target", self.target)):
            if bound is not None:
                text += f"   {word} {sign} {bound:,g} {'ok' if self.holds(bound) else 'MISSED'}"
        return text


def code_tokens(source: str, tree: ast.AST) -> int:
    """Code tokens of a file."""
    left_out: set[int] = set()
    for node in ast.walk(tree):
        first = node.body[0] if isinstance(node, DOCUMENTED) and node.body else None
        value = first.value if isinstance(first, ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            left_out.update(range(first.lineno, first.end_lineno + 1))
    return sum(
        token.type not in LAYOUT and token.start[0] not in left_out
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
    )


def files(folder: Path) -> dict[str, tuple[str, ast.Module]]:
    """Source and tree of each module by its dotted name."""
    found = {}
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        source = path.read_text(encoding="utf-8")
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = (source, ast.parse(source))
    return found


def room_of(module: str) -> str:
    """The room that a module of the package stands in: its folder, or itself at the top."""
    return ".".join(module.split(".")[:2])


def imports(modules: dict[str, tuple[str, ast.Module]]) -> dict[str, set[str]]:
    """Modules of the package that each one imports, anywhere in it; the package's face has none."""
    found: dict[str, set[str]] = defaultdict(set)
    for name, (_, tree) in modules.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module and name != "accelsim":
                full = [f"{node.module}.{alias.name}" for alias in node.names]
                found[name] |= {x if x in modules else node.module for x in full} & set(modules)
    return {name: others - {name, "accelsim"} for name, others in found.items()}


def circles(arrows: dict[str, set[str]]) -> int:
    """Groups of files that import each other in a loop (Tarjan, SIAM J. Computing 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    count = 0

    def visit(node: str) -> None:
        nonlocal count
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in arrows.get(node, ()):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            place = stack.index(node)
            count += len(stack) - place > 1
            del stack[place:]

    for name in arrows:
        if name not in index:
            visit(name)
    return count


def arrows_up(arrows: dict[str, set[str]]) -> int:
    """Pairs of rooms whose first imports from a layer that is not below its own."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    level = {room.strip(): place for place, row in enumerate(layers) for room in row.split("|")}
    pairs = {(room_of(a), room_of(b)) for a, others in arrows.items() for b in others}
    return sum(a != b and level[a] >= level[b] for a, b in pairs if a in level and b in level)


def mccabe(function: ast.AST) -> int:
    """Ways through a function, plus those of conditional expressions and comprehensions."""
    nodes = list(ast.walk(function))
    ors = sum(len(node.values) - 1 for node in nodes if isinstance(node, ast.BoolOp))
    return 1 + ors + sum(isinstance(node, (*BRANCHES, ast.match_case)) for node in nodes)


def parameter_count(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Named parameters of a function."""
    given = function.args
    return len(given.posonlyargs) + len(given.args) + len(given.kwonlyargs)


def is_arithmetic(node: ast.AST) -> bool:
    """Whether a node is an operator of arithmetic; ``|`` between types is none."""
    return isinstance(node, ast.BinOp) and isinstance(node.op, ARITHMETIC)


def cited_share(functions: list[ast.FunctionDef | ast.AsyncFunctionDef]) -> float:
    """Percent of functions of three arithmetic operators and more whose docstring cites a source,
    or says ``estimate``.
    """
    formulas = [f for f in functions if sum(map(is_arithmetic, ast.walk(f))) >= 3]
    cited = sum(bool(CITATION.search(ast.get_docstring(f) or "")) for f in formulas)
    return 100 * cited / len(formulas)


def function_figures(trees: list[ast.Module]) -> list[Figure]:
    """Figures of the package's functions."""
    functions = [node for tree in trees for node in ast.walk(tree) if isinstance(node, FUNCTIONS)]
    parameters = [parameter_count(function) for function in functions]
    complexity = [mccabe(function) for function in functions]
    lines = max(f.end_lineno - f.lineno + 1 for f in functions)  # type: ignore[operator]
    return [
        Figure("most parameters", max(parameters), 12),
        Figure("functions of more than 7 parameters", sum(n > 7 for n in parameters), 15),
        Figure("functions of McCabe > 10", sum(n > 10 for n in complexity), 110),
        Figure("highest McCabe", max(complexity), 20),
        Figure("longest function, lines", lines, 60),
        Figure("formulas that cite a source, %", cited_share(functions), None, 40, is_floor=True),
    ]


def cpu_ratio(base: Path, arguments: tuple[str, ...]) -> float:
    """CPU time of a command over that in another checkout: least of pairs of processes."""
    least_s: dict[Path, float] = {}
    for folder in (base, ROOT) * (PAIRS + 1):
        compiled = Path(tempfile.gettempdir()) / "accelsim-compiled"  # of both trees, or of neither
        environment = {
            **os.environ,
            "PYTHONPATH": str(folder),
            "PYTHONPYCACHEPREFIX": str(compiled),
        }
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        command = [sys.executable, "-m", "accelsim.cli", *arguments]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, env=environment, cwd="/", capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times = [x.ru_utime + x.ru_stime for x in (before, after)]
        (taken_s,) = (b - a for a, b in pairwise(times))
        least_s[folder] = min(taken_s, least_s.get(folder, taken_s))
    return least_s[ROOT] / least_s[base]


def figures(base: Path | None) -> list[Figure]:
    """All figures with their bounds."""
    package, tools = files(ROOT / "accelsim"), files(ROOT / "tools")
    rooms: Counter[str] = Counter()
    for name, (source, tree) in package.items():
        rooms[room_of(name).removeprefix("accelsim.")] += code_tokens(source, tree)
    code = rooms.total()
    print("\n".join(f"  {room:14} {size:8,} tokens" for room, size in rooms.most_common()))
    both = code + sum(code_tokens(source, tree) for source, tree in tools.values())
    text = "".join(source for source, _ in package.values())
    arrows = imports(package)
    return [
        Figure("code of accelsim/, tokens", code, 480_000, 450_000),
        Figure("code of accelsim/ and tools/, tokens", both, 560_000, 520_000),
        Figure("largest room, tokens", max(rooms.values()), 100_000, 95_000),
        Figure("cli and report, tokens", rooms["cli"] + rooms["report"], 65_000, 58_000),
        Figure("arrows up", arrows_up(arrows), 0),
        Figure("circles of files", circles(arrows), 0),
        *function_figures([tree for _, tree in package.values()]),
        Figure("the word Any", len(re.findall(r"\bAny\b", text)), None, 541),
        Figure("getattr", text.count("getattr("), None, 116),
        *(
            Figure(f"CPU time of {name} over the base's", cpu_ratio(base, arguments), 1.15)
            for name, arguments in COMMANDS.items()
            if base is not None
        ),
    ]


def main() -> None:
    """Print the table; exit 1 if a figure that must hold does not."""
    arguments = sys.argv[1:]
    base = Path(arguments[1]).resolve() if arguments[:1] == ["--base"] else None
    found = figures(base)
    print("\n".join(figure.line() for figure in found))
    sys.exit(not all(figure.holds(figure.must) for figure in found))


if __name__ == "__main__":
    main()

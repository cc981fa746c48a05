"""Small faults put into a module, one at a time: its own tests must notice.

Faults are those of DeMillo, Lipton and Sayward, "Hints on test data selection", Computer 11(4),
1978, as mutation tools draw them: another constant, the wrong side of a comparison, another
operator of arithmetic, a term dropped, the wrong rounding or extreme. Nothing is written: a forked
process imports the changed module in place of the file. `python -m tools.mutants` draws 15 of each
module in `MODULES` with a fixed seed; `--all` takes all there are.
"""

from __future__ import annotations

import argparse
import ast
import importlib.machinery
import multiprocessing
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType
from typing import Any, Final, NamedTuple

import hypothesis  # noqa: F401  (imported once, before children are made)
import numpy as np  # noqa: F401
import pydantic  # noqa: F401
import pytest

ROOT: Final = Path(__file__).resolve().parent.parent
#: Module, by the end of its path, and the test file of its own.
MODULES: Final = {
    "training/memory.py": "test_train_memory.py",
    "cost/collective.py": "test_collective.py",
    "cost/gpu/gemm.py": "test_gpu_gemm.py",
}
_COUNT: Final = 15
_SEED: Final = 2026
_LIMIT_S: Final = 120.0
_OPERATORS: Final[dict[type[ast.AST], Callable[[], Any]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_NAMES: Final = {
    "minimum": "maximum",
    "maximum": "minimum",
    "min": "max",
    "max": "min",
    "ceil": "floor",
    "floor": "ceil",
    "argmin": "argmax",
    "argmax": "argmin",
    "any": "all",
    "all": "any",
}


class Mutant(NamedTuple):
    """A module with one fault.

    Attributes:
        line: Where.
        fault: What the line says with it.
        source: The whole module.
    """

    line: int
    fault: str
    source: str


def mutants(source: str) -> list[Mutant]:
    """All faults of a module, in its order.

    Args:
        source: The module.
    """
    lines = source.encode().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    raw = source.encode()
    mutants = []
    for node, text in _faults(ast.parse(source)):
        first = starts[node.lineno - 1] + node.col_offset
        last = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        changed = (raw[:first] + f"({text})".encode() + raw[last:]).decode()
        before = raw[first:last].decode()
        fault = " ".join(f"{before}  ->  {text}".split())
        mutants.append(Mutant(node.lineno, fault, changed))
    return mutants


def _faults(tree: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    """Expressions and what stands in their place; annotations and decorators stay."""
    for node in _code(tree):
        for changed in _changes(node):
            yield node, ast.unparse(ast.fix_missing_locations(changed))


def _code(tree: ast.AST) -> Iterator[ast.expr]:
    if isinstance(tree, ast.keyword) and tree.arg == "strict":  # of zip: refuses a fault of ours
        return
    for name, value in ast.iter_fields(tree):
        if name in {"annotation", "returns", "decorator_list"}:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.JoinedStr) or not isinstance(child, ast.AST):
                continue
            if isinstance(child, ast.expr):
                yield child
            yield from _code(child)


def _changes(node: ast.expr) -> Iterator[ast.expr]:
    change = _CHANGES.get(type(node))
    return iter(()) if change is None else change(node)


def _constant(node: ast.Constant) -> Iterator[ast.expr]:
    value = node.value
    if isinstance(value, bool):
        yield ast.Constant(not value)
    elif isinstance(value, (int, float)):
        yield ast.Constant(value + 1)
        if value not in {0, 1}:
            yield ast.Constant(value * 2)


def _arithmetic(node: ast.BinOp) -> Iterator[ast.expr]:
    if type(node.op) in _OPERATORS:
        yield ast.BinOp(node.left, _OPERATORS[type(node.op)](), node.right)
    if isinstance(node.op, (ast.Add, ast.Sub, ast.Mult, ast.Div)):
        yield node.left
    if isinstance(node.op, (ast.Add, ast.Mult)):
        yield node.right


def _comparison(node: ast.Compare) -> Iterator[ast.expr]:
    if len(node.ops) == 1 and type(node.ops[0]) in _OPERATORS:
        yield ast.Compare(node.left, [_OPERATORS[type(node.ops[0])]()], node.comparators)


def _both(node: ast.BoolOp) -> Iterator[ast.expr]:
    yield ast.BoolOp(_OPERATORS[type(node.op)](), node.values)


def _unary(node: ast.UnaryOp) -> Iterator[ast.expr]:
    yield node.operand


def _function(node: ast.Name) -> Iterator[ast.expr]:
    if node.id in _NAMES:
        yield ast.Name(_NAMES[node.id], node.ctx)


def _method(node: ast.Attribute) -> Iterator[ast.expr]:
    if node.attr in _NAMES:
        yield ast.Attribute(node.value, _NAMES[node.attr], node.ctx)


_CHANGES: Final[dict[type[ast.expr], Callable[[Any], Iterator[ast.expr]]]] = {
    ast.Constant: _constant,
    ast.BinOp: _arithmetic,
    ast.Compare: _comparison,
    ast.BoolOp: _both,
    ast.UnaryOp: _unary,
    ast.Name: _function,
    ast.Attribute: _method,
}


def _run(path: Path, source: str, test: Path) -> None:
    """Run a module's tests on another source of it; ends with pytest's code (0: all passed)."""
    loader = importlib.machinery.SourceFileLoader
    get_code = loader.get_code

    def changed(self: Any, fullname: str) -> CodeType | None:
        if Path(self.path) == path:
            return compile(source, str(path), "exec")
        return get_code(self, fullname)

    loader.get_code = changed  # type: ignore[method-assign]
    silence = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(silence, stream)
    words = ["-x", "-q", "-n", "0", "-p", "no:cacheprovider", str(test)]
    os._exit(int(pytest.main(words)))


def _only(folder: Path, pattern: str) -> Path:
    paths = [path for path in folder.rglob(Path(pattern).name) if str(path).endswith(pattern)]
    if len(paths) != 1:
        raise SystemExit(f"{pattern}: {len(paths)} files in {folder}, not one")
    return paths[0]


def _judge(module: str, test_name: str, asked: argparse.Namespace) -> tuple[int, int]:
    """Deaths and mutants of one module; survivors are printed."""
    path, test = _only(ROOT / "accelsim", module), _only(ROOT / "tests", test_name)
    source = path.read_text(encoding="utf-8")
    drawn = mutants(source)
    if not asked.all:
        drawn = random.Random(asked.seed).sample(drawn, min(asked.count, len(drawn)))  # noqa: S311
    dead = 0
    started = time.monotonic()
    if not _survives(path, source, test):
        raise SystemExit(f"{test.name} fails on the module as it stands")
    print(f"{module}: {test.name} takes {time.monotonic() - started:.1f} s")
    for mutant in sorted(drawn):
        if _survives(path, mutant.source, test):
            print(f"  alive, line {mutant.line}: {mutant.fault}", flush=True)
        else:
            dead += 1
    print(f"{module}: {dead} of {len(drawn)} died", flush=True)
    return dead, len(drawn)


def _survives(path: Path, source: str, test: Path) -> bool:
    """Whether a module's tests pass; a fault that never ends is noticed."""
    child = multiprocessing.get_context("fork").Process(target=_run, args=(path, source, test))
    child.start()
    child.join(_LIMIT_S)
    if child.is_alive():
        child.kill()
        child.join()
    return child.exitcode == 0


def main() -> None:
    """Draw mutants of each module, print the survivors; code 1 where more than a fifth live."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("modules", nargs="*", help=f"of {', '.join(MODULES)}; all if none")
    parser.add_argument("--count", type=int, default=_COUNT, help="mutants of each module")
    parser.add_argument("--seed", type=int, default=_SEED)
    parser.add_argument("--all", action="store_true", help="all mutants there are")
    asked = parser.parse_args()
    os.chdir(ROOT)
    judged = [_judge(name, MODULES[name], asked) for name in asked.modules or MODULES]
    if any(dead < 0.8 * drawn for dead, drawn in judged):
        raise SystemExit(1)


if __name__ == "__main__":
    main()

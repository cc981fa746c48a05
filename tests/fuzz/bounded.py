"""Gives hostile files to every reader, in a process of its own: prints as JSON what each did with
each, and the most memory that was taken so far.

``python -m tests.fuzz.bounded FOLDER FILE,... [READER...]``.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from accelsim.cli import main as accelsim_main

#: Seconds that a reader may take for one file.
LONGEST_S = 120


def _priced(file: str) -> list[str]:
    os.environ["ACCELSIM_PRICE_PATH"] = file
    return ["offers", "list"]


#: Reader -> names its files may have, and the command line that reads one.
READERS: dict[str, tuple[tuple[str, ...], Callable[[str], list[str]]]] = {
    "device": ((".yaml", ".json"), lambda f: ["estimate", "lenet-5", "--device-file", f]),
    "model": (
        (".yaml", ".json", ".onnx", ".gguf", ".safetensors"),
        lambda f: ["estimate", f, "-d", "t4"],
    ),
    "prices": ((".yaml", ".csv"), _priced),
    "fetched": ((".csv", ".json"), lambda f: ["offers", "import", f, "--out", f + ".out"]),
    "trace": (
        (".csv", ".jsonl", ".json"),
        lambda f: ["serve", "llama-3.1-8b", "--device", "h100-sxm-80gb", "--arrivals", f],
    ),
    "scenario": ((".yaml", ".json"), lambda f: ["plan", f]),
    "sweep": ((".yaml", ".json"), lambda f: ["sweep", f, "--out", f + ".out"]),
    "results": ((".json",), lambda f: ["report", f, "--out", f + ".html"]),
    "benchmark": ((".json",), lambda f: ["learn", "steps", f, "--out", f + ".csv"]),
    "runs": (
        (".json", ".jsonl", ".yaml", ".csv"),
        lambda f: ["learn", f, "-d", "t4", "--engine", "vllm"],
    ),
    "run": ((".jsonl",), lambda f: ["calibrate", "--from", f, "--out", f + ".out"]),
    "steps": (
        (".csv",),
        lambda f: ["serve", "llama-3.1-8b", "--device", "h100-sxm-80gb", "--step-times", f],
    ),
}


def _peak_bytes() -> int:
    """Most memory of this process; what `getrusage` says starts with that of the process that
    started it.
    """
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def _packed(path: Path, text: bytes) -> None:
    with gzip.open(path, "wb") as file:
        for _ in range(150):
            file.write(text)


def _sparse(path: Path) -> None:
    path.write_bytes(b'{"a": ')
    os.truncate(path, 200_000_000)


def _repeated(start: bytes, part: bytes, end: bytes) -> Callable[[Path], None]:
    """A file as large as readers take, dense with values."""

    def write(path: Path) -> None:
        with path.open("wb") as file:
            file.write(start)
            block = part * (1_000_000 // len(part))
            for _ in range(60):
                file.write(block)
            file.write(end)

    return write


#: What a file holds.
FILES: dict[str, Callable[[Path], object]] = {
    "zero": lambda path: path.symlink_to("/dev/zero"),
    "fifo": os.mkfifo,
    "folder": lambda path: path.mkdir(),
    "sparse": _sparse,
    "lists": _repeated(b'{"a":[', b"[],", b"0]}"),
    "mappings": _repeated(b'{"a":[', b'{"b":1},', b"0]}"),
    "lines": _repeated(b"a,b\n", b"1,2\n", b""),
    "gzip": lambda path: _packed(path, b"1,2\n" * 250_000),
}


@contextlib.contextmanager
def _alarm() -> Iterator[None]:
    def ring(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, ring)
    signal.alarm(LONGEST_S)
    try:
        yield
    finally:
        signal.alarm(0)


def outcome(words: list[str]) -> str:
    """What a command line comes to: its exit code and the beginning of its error."""
    told = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(told):
        try:
            with _alarm():
                accelsim_main(words)
        except SystemExit as ended:
            return f"{ended.code} {told.getvalue()[:200]}"
        except TimeoutError:
            return "hangs"
        except BaseException as error:  # noqa: BLE001  (what is looked for)
            return f"{type(error).__name__}: {error}"
    return "0"


def main() -> None:
    """Every reader on every file."""
    folder, kinds, wanted = Path(sys.argv[1]), sys.argv[2].split(","), sys.argv[3:]
    for reader in wanted or list(READERS):
        suffixes, words = READERS[reader]
        for suffix in suffixes:
            for kind in kinds:
                path = folder / f"{reader}-{kind}{suffix}"
                FILES[kind](path)
                began = time.monotonic()
                result = outcome(words(str(path)))
                peak = _peak_bytes()
                spent = round(time.monotonic() - began, 2)
                line = {"reader": reader, "suffix": suffix, "file": kind, "outcome": result}
                print(json.dumps(line | {"peak_bytes": peak, "s": spent}), flush=True)  # noqa: T201
                if path.is_file() and not path.is_symlink():
                    path.unlink()


if __name__ == "__main__":
    main()

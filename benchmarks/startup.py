"""CPU time of the command line and of the library, each in fresh processes with files cached; exits
1 over a limit.

Times are user + system of the child processes, the least and the median of ten after one that
compiles modules and warms the caches: an installed package's modules are compiled, so that these
processes keep what they compile in a folder of their own, whatever ``PYTHONDONTWRITEBYTECODE`` says
outside. The least is held against the limit, since other work on the machine can only add to it.
Machines differ, and a shared one by the hour: ``import numpy`` beside them is a third-party measure
of today's speed.
``python benchmarks/startup.py --profile`` also lists the modules that take longest to import.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COMPILED = Path(tempfile.gettempdir()) / "accelsim-compiled"
IMPORT = "import time; t = time.thread_time(); import accelsim; print(time.thread_time() - t)"
RUNS = 10
#: What a process takes that does nothing, and one that imports numpy alone.
REFERENCES = {"python -c pass": ("-c", "pass"), "import numpy": ("-c", "import numpy")}
CLI = ("-m", "accelsim.cli")
LIMITS_S = {
    **{name: (words, None) for name, words in REFERENCES.items()},
    "accelsim --help": ((*CLI, "--help"), 0.10),
    "import accelsim": (("-c", IMPORT), 0.05),
    "estimate resnet-50 -d t4": ((*CLI, "estimate", "resnet-50", "-d", "t4"), 0.40),
    "estimate bert-large -d epyc-9654": (
        (*CLI, "estimate", "bert-large", "-d", "epyc-9654", "--format", "json"),
        0.40,
    ),
    "estimate llama-3.1-8b -d h100-sxm-80gb": (
        (*CLI, "estimate", "llama-3.1-8b", "-d", "h100-sxm-80gb"),
        0.40,
    ),
    "estimate resnet-50 -d tpu-v4, training": (
        (*CLI, "estimate", "resnet-50", "-d", "tpu-v4", "--mode", "training"),
        0.40,
    ),
    "devices list": ((*CLI, "devices", "list"), None),
    "workloads list": ((*CLI, "workloads", "list"), None),
    "demo": ((*CLI, "demo"), 10.0),
}
#: A second estimate through the library, once all is imported and the workload is known.
SECOND_ESTIMATE_LIMIT_S = 0.005


def run_python(*arguments):
    """Output of a process that finds its modules compiled, as an installed package's are."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(COMPILED), "PYTHONPATH": str(ROOT)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, *arguments]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return ran.stdout


def cpu_times_s(commands):
    """User and system times of child processes by name, ascending; in rounds of one process each,
    so that all meet the same machine.
    """
    times = {name: [] for name in commands}
    for arguments in commands.values():
        run_python(*arguments)
    for _ in range(RUNS):
        for name, arguments in commands.items():
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            run_python(*arguments)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            taken = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            times[name].append(taken)
    return {name: sorted(found) for name, found in times.items()}


def import_s():
    """Least CPU time of ``import accelsim`` in a fresh interpreter."""
    return min(float(run_python("-c", IMPORT)) for _ in range(RUNS))


def median(values):
    return sorted(values)[len(values) // 2]


def second_estimate_s():
    """CPU time of one more estimate of the same model on the same device, at the same sizes."""
    import accelsim

    times = []
    for _ in range(RUNS + 1):
        start = time.process_time()
        accelsim.estimate("resnet-50", "t4", batch=32)
        times.append(time.process_time() - start)
    return median(times[1:])


def slowest_imports(count=15):
    """Modules with the longest import of their own, in milliseconds."""
    command = [sys.executable, "-X", "importtime", *CLI, "estimate", "resnet-50", "-d", "t4"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    rows = [
        line.removeprefix("import time:").split("|")
        for line in text.splitlines()
        if line.startswith("import time:")
    ]
    own = [(int(row[0]) / 1e3, row[2].strip()) for row in rows if row[0].strip().isdigit()]
    return sorted(own, reverse=True)[:count]


def main():
    over = 0
    found = cpu_times_s({name: arguments for name, (arguments, _) in LIMITS_S.items()})
    for name, (_, limit_s) in LIMITS_S.items():
        times_s = found[name]
        over += limit_s is not None and times_s[0] > limit_s
        limit = "-" if limit_s is None else f"{limit_s:.2f} s"
        print(f"{name:42s} {times_s[0]:6.3f} s, median {median(times_s):6.3f} s   limit {limit}")
    taken_s = second_estimate_s()
    over += taken_s > SECOND_ESTIMATE_LIMIT_S
    limit_ms = 1e3 * SECOND_ESTIMATE_LIMIT_S
    label = "a second estimate through the library"
    print(f"{label:42s} {1e3 * taken_s:6.2f} ms  limit {limit_ms:.0f} ms")
    if "--profile" in sys.argv:
        for own_ms, module in slowest_imports():
            print(f"{own_ms:8.1f} ms  {module}")
    sys.exit(over > 0)


if __name__ == "__main__":
    main()

"""How much memory a measurement may take, so that a machine short of it refuses an allocation and
kills no process.

Linux gives memory that it does not have and ends a process when it is touched. A limit on the
process's data (RLIMIT_DATA, private writable mappings since Linux 4.7) at what is available turns
that into an error that a session can answer by halving the case. Needs the standard library alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

#: Share of the available memory a session takes at most; the rest is for page tables and other
#: programs.
_SHARE = 0.9


def available_bytes(
    proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")
) -> int | None:
    """Memory this process can still take: the machine's, or its container's where that is less;
    None where not known.
    """
    free = field_bytes(proc / "meminfo", "MemAvailable:", 1024)
    limit, used = _number(cgroup / "memory.max"), _number(cgroup / "memory.current")
    if limit is None or used is None:
        return free
    cache = field_bytes(cgroup / "memory.stat", "inactive_file", 1) or 0  # dropped when needed
    cgroup_free = max(0, limit - used + cache)
    return cgroup_free if free is None else min(free, cgroup_free)


@contextmanager
def memory_limit(limit_bytes: int | None = None) -> Iterator[None]:
    """Let this process allocate that much more, and no more.

    Args:
        limit_bytes: Bytes beyond what it has; nine tenths of what is available where None.
    """
    import resource

    used = field_bytes(Path("/proc/self/status"), "VmData:", 1024)
    free = available_bytes() if limit_bytes is None else limit_bytes
    if used is None or free is None:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = used + int(_SHARE * free if limit_bytes is None else free)
    bounds = [value for value in (wanted, soft, hard) if value != resource.RLIM_INFINITY]
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (min(bounds), hard))
    try:
        yield
    finally:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def field_bytes(path: Path, name: str, unit: int) -> int | None:
    """The number behind a name at the start of a line of a file, in units of bytes; None where it
    cannot be read.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        line = next(line for line in lines if line.startswith(name))
        return int(line.split()[1]) * unit
    except (OSError, ValueError, IndexError, StopIteration):
        return None

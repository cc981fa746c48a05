"""Where batches are worked on: in this process, in processes beside it, or on a Dask cluster."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import active_children, get_context, parent_process, resource_tracker
from threading import Thread, active_count
from typing import Any

import accelsim
from accelsim.errors import InvalidValueError, MissingDependencyError, OutputError
from accelsim.frozen import frozen

LOCAL = "local"
#: What a batch raises whose worker ended or had too little memory: another may answer it.
LOST = (BrokenProcessPool, MemoryError)
_DASK = "dask://"
_CONNECT_S = 10.0


@frozen
class Workers:
    """Who takes batches.

    Attributes:
        executor: Takes them.
        count: How many batches are worked on at once.
    """

    executor: Executor
    count: int


class _InPlace(Executor):
    """Works on what it is given at once, in this process."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **keywords: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(function(*args, **keywords))
        except MemoryError as error:
            future.set_exception(error)
        return future


class _Processes(Executor):
    """Processes beside this one, all of them new where one has ended.

    They are copies of this one with all that it has imported and read, where the system copies
    processes whole and this one has no other thread, whose locks a copy would find held for ever.

    Args:
        count: How many.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._others = set(active_children())
        self._pool = self._started()

    def _started(self) -> ProcessPoolExecutor:
        can_copy = sys.platform == "linux" and active_count() == 1
        context = get_context("fork" if can_copy else "spawn")
        return ProcessPoolExecutor(self._count, context, initializer=_end_with_parent)

    def submit(self, function: Callable[..., Any], /, *args: Any, **keywords: Any) -> Future[Any]:
        with _interrupts_held():
            try:
                return self._pool.submit(function, *args, **keywords)
            except BrokenProcessPool:
                self._pool.shutdown()
                self._pool = self._started()
                return self._pool.submit(function, *args, **keywords)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:  # nobody waits for what they are at
            for worker in set(active_children()) - self._others:
                worker.terminate()
                worker.join()
            # whoever reads half an answer hears that nobody is left to write the rest
            self._pool._result_queue._writer.close()  # type: ignore[attr-defined]  # noqa: SLF001
        self.shutdown()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._pool.shutdown(wait, cancel_futures=cancel_futures)


def _end_with_parent() -> None:
    """Have this process end when it is told to, and when the one that started it does, however that
    ends.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a copy has its parent's way of ending

    def wait() -> None:
        parent = parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    Thread(target=wait, daemon=True).start()


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Processes started here never hear of Ctrl-C, which a terminal tells all of its processes:
    this one ends them, and theirs would be a traceback each. It hears of it afterwards.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # its start ends the hold
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def worker_pool(where: str, workers: int) -> Iterator[Workers]:
    """Workers of a sweep.

    Args:
        where: "local", or ``dask://HOST:PORT`` of a scheduler.
        workers: Local processes; 1 stays in this one.

    Raises:
        InvalidValueError: If nothing answers there, or workers have another version of accelsim.
        MissingDependencyError: If distributed is not installed.
        OutputError: If workers of a cluster end for good, or it disappears.
    """
    if where.startswith(_DASK):
        with _dask(where) as crew:
            yield crew
    elif where != LOCAL:
        raise InvalidValueError("executor", where, f"{LOCAL} or {_DASK}HOST:PORT")
    elif workers == 1:
        yield Workers(_InPlace(), 1)
    else:
        with _Processes(workers) as pool:
            yield Workers(pool, workers)


@contextmanager
def _dask(where: str) -> Iterator[Workers]:
    try:
        import distributed
    except ImportError:
        raise MissingDependencyError("distributed", "dask") from None
    try:
        connect: Any = distributed.Client
        client = connect(where.removeprefix(_DASK), timeout=_CONNECT_S)
    except (OSError, ValueError):
        allowed = "the address of a running scheduler"
        raise InvalidValueError(
            "executor", where, allowed, "Start one: dask scheduler --host HOST"
        ) from None
    with client:
        try:
            yield Workers(client.get_executor(pure=False), _checked_threads(client, where))
        except distributed.KilledWorker:
            message = "workers ended again and again (out of memory?). Run again to go on."
            raise OutputError(message) from None
        except CancelledError:
            raise OutputError(f"the cluster at {where} disappeared. Run again to go on.") from None


def _checked_threads(client: Any, where: str) -> int:
    """Threads of all workers, whose version is this one's."""
    threads = sum(client.nthreads().values())
    if not threads:
        raise InvalidValueError("executor", where, "a cluster with workers", "dask worker ADDRESS")
    for worker, version in client.run(_version).items():
        if version != accelsim.__version__:
            allowed = f"workers with accelsim {accelsim.__version__}"
            raise InvalidValueError("executor", f"{worker}: {version}", allowed)
    return int(threads)


def _version() -> str:
    return accelsim.__version__

"""The process behind a live page: one that dies is replaced, one that was ended is not."""

from __future__ import annotations

import asyncio

import pytest

from accelsim.frontends.worker import EndedError, Worker

QUESTION = ("estimate", {"model": "lenet-5", "device": "t4"}, "accelsim estimate lenet-5")


def ask(worker):
    return asyncio.run(worker.ask(QUESTION, lambda text: None))


def test_a_process_that_died_is_replaced():
    worker = Worker()
    worker._process.kill()  # as the kernel does that is out of memory
    worker._process.join()
    try:
        assert ask(worker).metrics["latency_s"]["value"] > 0
    finally:
        worker.end()


def test_nothing_is_started_after_the_end():
    worker = Worker()
    worker.end()
    with pytest.raises(EndedError):
        ask(worker)
    assert not worker._process.is_alive()

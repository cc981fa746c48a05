"""Replays a module through `torch.export` where running it needs a value the capture does not have.

Export keeps such a value as a symbol. If no tensor's size contains one, the cost does not depend on
it, and the exported graph is replayed on shapes with zero in its place (an index into a tensor, a
position). If a size does, the capture refuses.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_flatten, tree_map_only

from accelsim.errors import CaptureError
from accelsim.workloads.capture.torch.meta_module import brief, tensors_in

if TYPE_CHECKING:
    from accelsim.workloads.capture.torch.recorder import OperatorRecorder

#: Operators that read one value.
_READS = frozenset({torch.ops.aten.item.default, torch.ops.aten._local_scalar_dense.default})  # noqa: SLF001


def export_graph(
    module: torch.nn.Module, inputs: tuple[tuple[Any, ...], dict[str, Any]], refused: CaptureError
) -> Any:
    """Export a meta module.

    Args:
        module: The module, on the meta device.
        inputs: Positional and keyword arguments.
        refused: Why running it was refused; the cause of a refusal here.

    Returns:
        The exported graph module, none of whose sizes depends on data.

    Raises:
        CaptureError: If export refuses, or a size depends on data.
    """
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    args, keywords = tree_map_only(torch.Tensor, lambda x: x.to("meta"), inputs)
    try:
        with _quiet():
            program = torch.export.export(module, args, keywords, strict=False)
    except Exception as error:
        raise CaptureError(f"{refused} torch.export refuses it too: {brief(error)}") from error
    for node in program.graph.nodes:
        if any(map(free_unbacked_symbols, tensors_in(node.meta.get("val")))):
            raise CaptureError(
                f"{refused} torch.export shows that the size of {node.name!r} depends on it."
            )
    return program.module()


@contextmanager
def _quiet() -> Iterator[None]:
    """Export explains its refusals on the console; ours says it in one message."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            yield
    finally:
        logging.disable(before)


def replay(graph: Any, recorder: OperatorRecorder) -> Callable[..., Any]:
    """A function that runs the exported graph, telling the recorder each node's module path."""

    class Replay(torch.fx.Interpreter):  # type: ignore[misc]
        def run_node(self, n: torch.fx.Node) -> Any:
            if n.target in _READS:
                value = recorder.known(self.env[n.args[0]])
                return 0 if value is None else value.item()
            checks = ("assert" in str(n.target), "sym_constrain" in str(n.target))
            if n.op == "call_module" or any(checks):
                return None
            with recorder.within(_path(n, recorder)):
                return super().run_node(n)

    def run(*args: Any, **keywords: Any) -> Any:
        return Replay(graph).run(*tree_flatten((args, keywords))[0])

    return run


def _path(node: torch.fx.Node, recorder: OperatorRecorder) -> str:
    stack = node.meta.get("nn_module_stack") or {}
    paths = [entry[0] for entry in stack.values()]
    return (paths[-1] if paths else "") or recorder.root

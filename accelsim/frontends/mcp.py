"""``accelsim mcp``: the commands as tools of the Model Context Protocol, on standard streams."""

from __future__ import annotations

import io
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accelsim.cli.options import with_help
from accelsim.errors import InvalidValueError, MissingDependencyError
from accelsim.option import option

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server


@with_help
def mcp(
    folder: Path | None = option(
        "Folder whose files may be read, from which paths start. Default: none.",
        metavar="DIR",
    ),
) -> None:
    """Answer programs over the Model Context Protocol on standard input and output."""
    try:
        import anyio
        from mcp.server.stdio import stdio_server
    except ImportError:
        raise MissingDependencyError("mcp", "mcp") from None
    if folder is not None:
        if not folder.is_dir():
            raise InvalidValueError("folder", str(folder), "a folder that exists")
        os.chdir(folder)
        folder = Path.cwd()
    tool_server = server(folder)

    async def run() -> None:
        async with stdio_server() as (requests, answers):
            await tool_server.run(requests, answers, tool_server.create_initialization_options())

    anyio.run(run)


def server(folder: Path | None) -> Server[Any]:
    """A server of the tools.

    Args:
        folder: Folder whose files may be read; None for none.
    """
    import anyio
    from anyio.to_thread import run_sync
    from mcp.server.lowlevel import Server
    from mcp.types import (
        CallToolRequestParams,
        CallToolResult,
        ListToolsResult,
        TextContent,
        Tool,
        ToolAnnotations,
    )

    import accelsim
    from accelsim.cli.entry import error_text
    from accelsim.frontends.tools import TOOLS, about, answer, input_schema, reading_below

    limiter = anyio.CapacityLimiter(1)
    reads = ToolAnnotations(read_only_hint=True, open_world_hint=False)

    async def list_tools(*_: object) -> ListToolsResult:
        tools = [
            Tool(
                name=name,
                description=about(name),
                input_schema=input_schema(name),
                annotations=reads,
            )
            for name in TOOLS
        ]
        return ListToolsResult(tools=tools)

    async def call_tool(_: object, call: CallToolRequestParams) -> CallToolResult:
        texts: tuple[str, ...]
        is_error, notes = False, io.StringIO()
        try:
            with reading_below(*filter(None, [folder])):
                run = partial(answer, call.name, call.arguments or {}, notes)
                texts = (await run_sync(run, limiter=limiter), notes.getvalue())
        except Exception as error:  # noqa: BLE001  (whatever it is, the caller gets a line)
            texts, is_error = (error_text(error),), True
        content = [TextContent(type="text", text=text) for text in texts if text]
        return CallToolResult(content=content, is_error=is_error)

    return Server(
        "accelsim",
        version=accelsim.__version__,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )

"""Figures as HTML: one way from a plotly figure to a fragment that any page can hold.

A fragment needs no network: the first one on a page brings plotly's script, the others leave it
out, or all take it from a file beside the page.
"""

from __future__ import annotations

from typing import Any, Literal

from accelsim.errors import MissingDependencyError


def html_fragment(
    figure: Any, *, with_script: bool | Literal["directory"] = True, name: str | None = None
) -> str:
    """A figure as a `<div>` of HTML.

    Args:
        figure: A plotly figure, or the dictionary of one.
        with_script: Whether to bring plotly's script (about 4 MB); once a page is enough.
            "directory" takes it from ``plotly.min.js`` beside the page.
        name: Id of the `<div>`; a random one where None.

    Raises:
        MissingDependencyError: If plotly is not installed.
    """
    try:
        from plotly.graph_objects import Figure
        from plotly.io import to_html
    except ImportError:
        raise MissingDependencyError("plotly", "plots") from None
    config = {"displaylogo": False, "responsive": True}
    whole = Figure(figure)  # brings what a template's name stands for
    script = {"include_plotlyjs": with_script, "full_html": False}
    return str(to_html(whole, config=config, div_id=name, **script))

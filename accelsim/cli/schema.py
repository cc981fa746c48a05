"""``accelsim schema``: JSON Schemas of the files people write."""

from __future__ import annotations

from accelsim.cli.result_writer import ResultWriter, with_output
from accelsim.files.formats import OutputFormat
from accelsim.option import argument


@with_output
def schema(
    output: ResultWriter, name: str = argument("device, workload, scenario or sweep.", "KIND")
) -> None:
    """Write the JSON Schema of a file: device, workload, scenario or sweep."""
    from dataclasses import replace

    from accelsim.errors import InvalidValueError
    from accelsim.exploration.sweeps.schema import json_schema

    if output.output_format not in {OutputFormat.TABLE, OutputFormat.JSON}:
        allowed = "json: a schema is nested, and no table"
        raise InvalidValueError("format", str(output.output_format), allowed)
    document = json_schema(name)
    replace(output, output_format=OutputFormat.JSON).emit(document, "")

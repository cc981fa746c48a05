"""Reads SCALE-Sim configuration files: array, dataflow, scratchpads and memory bandwidth.

SCALE-Sim knows neither clock nor number format: its words have no width and its time is cycles.
Both are given when a configuration becomes a design. Format: scalesim/scale_config.py of
SCALE-Sim v2 (187e81c0) and v3; sections and keys are matched without regard to case.
"""

from __future__ import annotations

import configparser
from collections.abc import Mapping
from pathlib import Path

from accelsim.dtype import Dtype
from accelsim.errors import InvalidValueError, ProfileError
from accelsim.files.datafile import read_text
from accelsim.frozen import frozen
from accelsim.hardware.profile import Dataflow

_MAX_BYTES = 100_000
#: Short names of the dataflows, as SCALE-Sim spells them.
DATAFLOWS = {
    "os": Dataflow.OUTPUT_STATIONARY,
    "ws": Dataflow.WEIGHT_STATIONARY,
    "is": Dataflow.INPUT_STATIONARY,
}
_WHOLE = {
    "arrayheight": "rows",
    "arraywidth": "columns",
    "ifmapsramszkb": "input_sram_kib",
    "filtersramszkb": "weight_sram_kib",
    "ofmapsramszkb": "output_sram_kib",
}
_LARGEST = 10**7


@frozen
class ScaleSimConfig:
    """One configuration.

    Attributes:
        rows: Array height.
        columns: Array width.
        input_sram_kib: Scratchpad of activations, 1,024 words of one byte per unit.
        weight_sram_kib: Of weights.
        output_sram_kib: Of results.
        dataflow: Stationary operand.
        words_per_cycle: Memory bandwidth; None where SCALE-Sim works it out (CALC).
    """

    rows: int
    columns: int
    input_sram_kib: int
    weight_sram_kib: int
    output_sram_kib: int
    dataflow: Dataflow
    words_per_cycle: float | None

    def rate_bytes_per_s(self, dtype: Dtype, clock_hz: float, given: float | None) -> float:
        """Bandwidth of main memory.

        Args:
            dtype: Format of the words.
            clock_hz: Array clock.
            given: In place of the configuration's.

        Raises:
            InvalidValueError: If it is in neither place.
        """
        rate = given
        if rate is None and self.words_per_cycle is not None:
            rate = self.words_per_cycle * dtype.bytes * clock_hz
        if rate is None or not rate > 0:
            remedy = "The file leaves it to SCALE-Sim (CALC): give it here."
            raise InvalidValueError("bandwidth_bytes_per_s", rate, "above 0", remedy)
        return rate


def read_scalesim_config(path: str | Path) -> ScaleSimConfig:
    """Read a configuration file.

    Raises:
        ProfileError: If it cannot be read, or naming each key that is missing or wrong.
    """
    return parse_scalesim_config(read_text(Path(path), _MAX_BYTES), str(path))


def parse_scalesim_config(text: str, label: str = "<config>") -> ScaleSimConfig:
    """Parse the text of a configuration file; errors of `read_scalesim_config`."""
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(text)
    except configparser.Error as error:
        raise ProfileError(
            label, [f"not a configuration file: {str(error).splitlines()[0]}"]
        ) from None
    sections = {name.lower(): dict(parser[name]) for name in parser}
    presets = sections.get("architecture_presets")
    if presets is None:
        raise ProfileError(label, ["section [architecture_presets] is missing"])
    problems: list[str] = []
    whole = {field: _whole(presets, key, problems) for key, field in _WHOLE.items()}
    dataflow = DATAFLOWS.get(presets.get("dataflow", "").lower())
    if dataflow is None:
        problems.append(f"Dataflow: {presets.get('dataflow')!r}; expected os, ws or is")
    words = _words_per_cycle(presets, sections.get("run_presets", {}), problems)
    if problems or dataflow is None:
        raise ProfileError(label, problems)
    return ScaleSimConfig(**whole, dataflow=dataflow, words_per_cycle=words)


def _whole(values: Mapping[str, str], key: str, problems: list[str]) -> int:
    text = values.get(key, "")
    if text.isascii() and text.isdigit() and 1 <= int(text[:12]) <= _LARGEST:
        return int(text)
    problems.append(f"{key}: {text[:40]!r}; expected a whole number from 1 to {_LARGEST:,}")
    return 0


def _words_per_cycle(
    presets: Mapping[str, str], run: Mapping[str, str], problems: list[str]
) -> float | None:
    """The least of the given bandwidths, which is what SCALE-Sim uses; None in CALC mode."""
    mode = run.get("interfacebandwidth", "CALC").upper()
    if mode == "CALC":
        return None
    if mode != "USER":
        problems.append(f"InterfaceBandwidth: {mode!r}; expected USER or CALC")
    parts = presets.get("bandwidth", "").split(",")
    return float(min(_whole({"Bandwidth": part.strip()}, "Bandwidth", problems) for part in parts))

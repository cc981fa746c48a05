"""Files that ``accelsim validate`` writes beside its result: every row, and the report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from accelsim.errors import OutputError
from accelsim.frozen import frozen
from accelsim.plain import Values

if TYPE_CHECKING:
    from accelsim.scoreboard import Scoreboard

#: File name of a report, without its suffix.
REPORT_NAME = "ACCURACY"


@frozen
class ScoreFiles:
    """What is asked for.

    Attributes:
        rows: CSV file of every row; None for none.
        publish: Folder of the report; None for none.
        force: Whether existing files may be replaced.
    """

    rows: Path | None
    publish: Path | None
    force: bool

    def check(self) -> None:
        """Refuse what cannot be written before anything is scored.

        Raises:
            OutputError: If a folder cannot be made or a file exists.
        """
        from accelsim.files.output import check_output

        if self.rows is not None:
            check_output(self.rows, force=self.force)
        if self.publish is not None:
            try:
                self.publish.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                reason = f"cannot be made a folder: {error.strerror}"
                raise OutputError(f"{str(self.publish)!r} {reason}. Give another.") from None
            for name in _report_names():
                check_output(self.publish / name, force=self.force)

    def write(self, board: Scoreboard, scores: Values) -> None:
        """Write everything that was asked for.

        Args:
            board: A validation's result.
            scores: The same as plain data.
        """
        from accelsim.files.datafile import data_root
        from accelsim.files.formats import csv_blocks
        from accelsim.files.output import write_text
        from accelsim.scoreboard import evidence_dict, markdown, row_columns, row_names
        from accelsim.scoreboard.accuracy_file import accuracy_text, evidence_text
        from accelsim.scoreboard.parameters import parameters

        if self.rows is not None:
            lines = csv_blocks(row_names(board), row_columns(board))
            write_text(self.rows, lines, force=self.force)
        if self.publish is not None:
            texts = accuracy_text(scores), markdown(scores), evidence_text(evidence_dict(board))
            for name, text in zip(_report_names(), texts, strict=True):
                write_text(self.publish / name, text, force=self.force)
            if self.publish.resolve() == data_root() / "calibration":
                parameters().publish(board)


def _report_names() -> tuple[str, ...]:
    from accelsim.estimation.evidence import EVIDENCE_NAME

    return f"{REPORT_NAME}.json", f"{REPORT_NAME}.md", EVIDENCE_NAME

"""The sixth check list, measured by one committed run: well-known networks drawn at random, at
their published sizes.
"""

from __future__ import annotations

from accelsim.calibration.check_models.sixth import (  # noqa: F401
    classifiers,
    language_models,
    pixels,
    sequences,
    tables_and_graphs,
    transformers,
)

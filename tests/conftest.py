"""Each worker has a temporary folder of its own: two calibrations, in tests or by a user, do not
lock each other out. Properties are checked on 100 cases, or 10,000 (`make laws`), where a test does
not say otherwise.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("ci", max_examples=100, deadline=None)
settings.register_profile(
    "laws", max_examples=10_000, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture(scope="session", autouse=True)
def _own_temporary_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("temporary")))
        patch.setattr(tempfile, "tempdir", None)
        # processes that tests start need not compile the package each time
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        yield

"""A machine whose user calibrated it gives the tests what any other machine does."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: Fails where a device of the user's is found, in this process or in one that it starts.
PROBE = """
import subprocess, sys
from accelsim.catalog import device_names
ASK = "from accelsim.catalog import device_names; print(*device_names())"
def test_probe():
    child = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=True)
    assert "planted" not in device_names() and "planted" not in child.stdout.split()
"""


def test_what_a_user_keeps_at_home_is_not_read(tmp_path):
    devices = tmp_path / ".config" / "accelsim" / "devices"
    devices.mkdir(parents=True)
    t4 = next((ROOT / "device_profiles").rglob("t4.yaml")).read_text("utf-8")
    (devices / "planted.yaml").write_text(t4.replace("name: t4", "name: planted"), "utf-8")
    here = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    home = here | {"HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}

    def run(*arguments):
        words = [sys.executable, *arguments]
        return subprocess.run(
            words, cwd=tmp_path, env=home, capture_output=True, text=True, check=False
        )

    asked = "from accelsim.catalog import device_names; print(*device_names())"
    assert "planted" in run("-c", asked).stdout.split()
    (tmp_path / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text("utf-8"))
    (tmp_path / "test_probe.py").write_text(PROBE)
    ran = run("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_probe.py")
    assert "1 passed" in ran.stdout, ran.stdout

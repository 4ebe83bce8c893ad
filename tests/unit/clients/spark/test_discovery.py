"""Spark finds the format ``qbus`` by a top-level module."""

import subprocess
import sys
from pathlib import Path

import qbus.clients.spark


def test_the_discovered_module_has_the_data_source() -> None:
    discovery = Path(qbus.clients.spark.__file__).parent / "discovery"
    script = (
        f"import sys; sys.path.insert(0, {str(discovery)!r}); import pyspark_qbus;"
        "print(pyspark_qbus.__file__, pyspark_qbus.DefaultSource.name())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(discovery / "pyspark_qbus" / "__init__.py"), "qbus"]

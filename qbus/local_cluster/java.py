"""Finds Java, and the PySpark installation whose jars the nodes on Java use."""

import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

from qbus.local_cluster.layout import LocalClusterError


def java(user: str, oldest: int) -> str:
    """Return the ``java`` on the PATH.

    ``user`` is the program that needs it, ``oldest`` the major version it needs at least, such as
    17. Raises LocalClusterError if Java is missing or older.
    """
    found = shutil.which("java")
    if found is None:
        raise LocalClusterError(
            f"{user} needs Java {oldest} or newer, and there is no 'java' on the PATH:"
            " install one, such as the package default-jre-headless"
        )
    output = subprocess.run([found, "-version"], capture_output=True, text=True, check=False)  # noqa: S603 - found on the PATH
    version = java_version(output.stderr)
    if version is None:
        raise LocalClusterError(f"{found} does not run: {output.stderr.strip()[:500]}")
    if version < oldest:
        raise LocalClusterError(f"{found} is Java {version}: {user} needs {oldest} or newer")
    return found


def java_version(text: str) -> int | None:
    """The major version in the output of ``java -version``: 8 for ``1.8.0_392``."""
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found[1]) if found else None


def pyspark_home() -> Path | None:
    """The directory of PySpark, which includes the jars; None if it is not installed."""
    spec = find_spec("pyspark")
    return Path(spec.origin).parent if spec is not None and spec.origin is not None else None

"""What nodes that run on Java need of this machine: Java itself, and the jars of PySpark."""

import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

from qbus.local_cluster.errors import LocalClusterError


def java(user: str, oldest: int) -> str:
    """The ``java`` on the PATH; LocalClusterError if ``user`` needs a newer one, or there is none.

    ``oldest`` is a major version, such as 17.
    """
    found = shutil.which("java")
    if found is None:
        raise LocalClusterError(
            f"{user} needs Java {oldest} or newer, and there is no 'java' on the PATH:"
            " install one, such as the package default-jre-headless"
        )
    told = subprocess.run([found, "-version"], capture_output=True, text=True, check=False)  # noqa: S603 - found on the PATH
    version = java_version(told.stderr)
    if version is None:
        raise LocalClusterError(f"{found} does not run: {told.stderr.strip()[:500]}")
    if version < oldest:
        raise LocalClusterError(f"{found} is Java {version}: {user} needs {oldest} or newer")
    return found


def java_version(text: str) -> int | None:
    """The major version out of what ``java -version`` prints: ``1.8.0_392`` is 8, ``17.0.9`` 17."""
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found[1]) if found else None


def pyspark_home() -> Path | None:
    """Where PySpark is installed, which brings the jars; None if it is not."""
    spec = find_spec("pyspark")
    return Path(spec.origin).parent if spec is not None and spec.origin is not None else None

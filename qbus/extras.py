"""Says how to install the packages of an extra of Qbus."""

import shlex
import sys
from pathlib import Path


def lacks(what: str, extra: str) -> str:
    """Return an error message: ``what``, such as ``Arrow needs pyarrow``, and the remedy."""
    return f"{what}: {pip_install(extra)}"


def pip_install(extra: str) -> str:
    """Return the command that adds the packages of ``extra`` to the Python that runs.

    Where Qbus is installed, from a wheel or as a checkout, pip installs only them: it builds
    nothing again.
    """
    python = shlex.quote(sys.executable or "python")
    return f"{python} -m pip install {shlex.quote(f'{_qbus()}[{extra}]')}"


def _qbus() -> str:
    """Return what pip knows Qbus by: where it is not installed, the directory of its sources."""
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - for this alone

    try:
        version("qbus")
    except PackageNotFoundError:
        return str(Path(__file__).parents[1])
    return "qbus"

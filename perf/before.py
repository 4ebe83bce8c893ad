"""Another checkout of Qbus as the peer: what a change did to the speed, in pairs of one run.

``python -m perf --against DIR CLAIM ...``. Brokers and SDK of DIR take the place of Kafka's.
"""

from pathlib import Path

checkout: Path | None = None
"""The checkout to compare with, if that is asked for."""


def environment(directory: Path) -> dict[str, str]:
    """What makes a Python process import Qbus from ``directory``, wherever it runs."""
    return {"PYTHONPATH": str(directory), "PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": ""}

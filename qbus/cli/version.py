"""`qbus version`."""

import platform

import click

from .options import json_option
from .output import emit


@click.command()
@json_option
def version(as_json: bool) -> None:
    """Print the version of Qbus and of the Python that runs it."""
    from qbus import __version__

    document = {
        "qbus": __version__,
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "platform": f"{platform.system()} {platform.machine()}",
    }
    emit(
        document,
        lambda it: f"qbus {it['qbus']} ({it['implementation']} {it['python']}, {it['platform']})",
        as_json=as_json,
    )

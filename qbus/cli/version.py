"""`qbus version`."""

import platform

import click

from qbus.cli.options import json_option
from qbus.cli.output import emit


@click.command()
@json_option
def version(as_json: bool) -> None:
    """Print the versions of Qbus and Python, and the record codec in use."""
    from qbus import __version__
    from qbus.records import CODEC

    document = {
        "qbus": __version__,
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "platform": f"{platform.system()} {platform.machine()}",
        "codec": CODEC,
    }
    emit(
        document,
        lambda it: (
            f"qbus {it['qbus']} ({it['implementation']} {it['python']}, {it['platform']}, "
            f"{it['codec']} codec)"
        ),
        as_json=as_json,
    )

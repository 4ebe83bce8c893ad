"""`qbus version`."""

import platform
from typing import Any

import click

from qbus.cli.options import json_option
from qbus.cli.output import emit


def _form(document: dict[str, Any]) -> str:
    why_not = document["why_not_compiled"]
    return f"broker not compiled: {why_not}" if why_not else "compiled broker"


@click.command()
@json_option
def version(as_json: bool) -> None:
    """Print the versions of Qbus and Python, and what of Qbus is compiled."""
    from qbus import __version__, compiled
    from qbus.records import CODEC

    document = {
        "qbus": __version__,
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "platform": f"{platform.system()} {platform.machine()}",
        "codec": CODEC,
        "compiled": not compiled.WHY_NOT,
        "why_not_compiled": compiled.WHY_NOT or None,
    }
    emit(
        document,
        lambda it: (
            f"qbus {it['qbus']} ({it['implementation']} {it['python']}, {it['platform']}, "
            f"{it['codec']} codec, {_form(it)})"
        ),
        as_json=as_json,
    )

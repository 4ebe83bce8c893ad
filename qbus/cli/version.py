"""`qbus version`."""

import platform
from typing import Any

import click

from qbus.cli.options import json_option
from qbus.cli.output import emit


def form() -> dict[str, Any]:
    """Which form of Qbus this process runs, and so those that it starts."""
    from qbus import compiled
    from qbus.records import CODEC

    return {
        "codec": CODEC,
        "compiled": not compiled.WHY_NOT,
        "why_not_compiled": compiled.WHY_NOT or None,
    }


def describe(form: dict[str, Any]) -> str:
    """The form in words."""
    why_not = form["why_not_compiled"]
    broker = f"broker not compiled: {why_not}" if why_not else "compiled broker"
    return f"{form['codec']} codec, {broker}"


@click.command()
@json_option
def version(as_json: bool) -> None:
    """Print the versions of Qbus and Python, and what of Qbus is compiled."""
    from qbus import __version__

    document = {
        "qbus": __version__,
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "platform": f"{platform.system()} {platform.machine()}",
        **form(),
    }
    emit(
        document,
        lambda it: (
            f"qbus {it['qbus']} ({it['implementation']} {it['python']}, {it['platform']}, "
            f"{describe(it)})"
        ),
        as_json=as_json,
    )

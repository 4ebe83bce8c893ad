"""Runs scripts of commands against a server, and compares its replies."""

import itertools
import shlex
import time
from collections.abc import Sequence
from typing import Any

from tests.support.resp_client import RespClient

from .table import Step, is_id

_numbers = itertools.count()


def run(client: RespClient, steps: Sequence[Step]) -> None:
    """Send each command; AssertionError for the first reply that is another."""
    number = next(_numbers)
    names = {"q": f"table-{number}", "q2": f"table-{number}-2"}
    ids: list[str] = []
    for step in steps:
        time.sleep(step.after_s)
        command = step.command.format(*ids, **names)
        reply = client(*shlex.split(command))
        if step.command.startswith("ADDJOB") and is_id(reply):
            ids.append(reply)
        shown = _without_names(reply, ids, names)
        if callable(step.reply):
            assert step.reply(reply if step.reply is is_id else shown), f"{command}: {reply}"
        else:
            assert shown == step.reply, f"{command}: {reply!r}"


def _without_names(reply: Any, ids: Sequence[str], names: dict[str, str]) -> Any:
    if isinstance(reply, list):
        return [_without_names(one, ids, names) for one in reply]
    if isinstance(reply, str):
        if reply in ids:
            return f"{{{ids.index(reply)}}}"
        for name, queue in names.items():
            if reply == queue:
                return f"{{{name}}}"
    return reply

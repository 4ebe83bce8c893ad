"""The secrets that tests use, and where they must not be.

Whatever a test uses as a password, key or token is made by :func:`known_secret` or told to
:func:`remember`. After each test :func:`in_report` looks for all of them, also as base64 and hex,
in what was printed and logged, in the traceback, and in the logs of the servers that ran;
:func:`in_files` looks in what a broker keeps on disk.
"""

import base64
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.server_process import ServerProcess

_SHORTEST: Final = 8
_forms: dict[bytes, str] = {}


def known_secret(what: str) -> str:
    """A new secret that is looked for; ``what`` names it where it is found."""
    made = f"s3cret-{secrets.token_hex(12)}"
    remember(made, what)
    return made


def remember(secret: str | bytes, what: str) -> None:
    """Look for this, too."""
    data = secret.encode() if isinstance(secret, str) else secret
    if len(data) < _SHORTEST:
        raise ValueError("too short: it would be found everywhere")
    _forms.update(dict.fromkeys(forms(data), what))


def forms(secret: bytes) -> Iterator[bytes]:
    """A secret as it is, and as it may be written, whatever is around it."""
    yield secret
    yield secret.hex().encode()
    for before in range(3):
        # The letters at either end depend on what is there.
        encoded = base64.b64encode(bytes(before) + secret).rstrip(b"=")
        yield encoded[(0, 2, 3)[before] : (before + len(secret)) * 4 // 3]


def hits(text: str | bytes, where: str) -> list[str]:
    """The secrets that a text holds, by what they are and where."""
    data = text.encode(errors="surrogateescape") if isinstance(text, str) else text
    return [
        f"a secret {what} is in {where}, after {_before(data, form)}"
        for form, what in _forms.items()
        if form in data
    ]


def in_report(report: pytest.TestReport) -> list[str]:
    """The secrets in what a test has left behind: in its traceback, and at its end in all else."""
    if not _forms:
        return []
    found = hits(report.longreprtext, "the traceback")
    if report.when != "teardown":
        return found
    for title, text in report.sections:
        found += hits(text, title)
    for server in list(ServerProcess.instances):
        found += hits(server.log_text(), f"the log of {server.name} at {server.bootstrap}")
    return sorted(set(found))


def in_files(directory: Path, but_not: Iterable[Path] = ()) -> list[str]:
    """The secrets in all files below a directory."""
    left_out = set(but_not)
    return [
        hit
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path not in left_out
        for hit in hits(path.read_bytes(), str(path))
    ]


def _before(data: bytes, form: bytes) -> str:
    """What is before a hit, without the secret itself."""
    place = data.find(form)
    return repr(data[max(0, place - 60) : place])

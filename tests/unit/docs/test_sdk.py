"""The SDK documents every option, method and exception of its sync and async clients."""

import inspect
import pydoc
from typing import Any

import pytest

import qbus
from qbus import aio

from .generated import DOCS
from .sdk import CLIENTS, descriptions, is_error, methods, options

FACES = [
    pytest.param(getattr(module, name), id=f"{module.__name__}.{name}")
    for module in (qbus, aio)
    for name in CLIENTS
]


@pytest.mark.parametrize("client", FACES)
def test_every_option_is_described_once(client: type) -> None:
    described = [name for names, _ in descriptions(client) for name in names]
    assert sorted(described) == sorted(inspect.signature(client).parameters)


@pytest.mark.parametrize("client", FACES)
def test_every_method_says_what_it_does(client: type) -> None:
    silent = [name for name, function in methods(client) if not inspect.getdoc(function)]
    assert not silent


@pytest.mark.parametrize("client", FACES)
def test_help_shows_methods_with_their_arguments(client: type) -> None:
    text = pydoc.plain(pydoc.render_doc(client))
    for name, function in methods(client):
        assert f"{name}{inspect.signature(function)}".split("(", maxsplit=1)[0] in text
        assert str(inspect.getdoc(function)).splitlines()[0] in text


@pytest.mark.parametrize("name", CLIENTS)
def test_both_faces_take_the_same(name: str) -> None:
    def signatures(client: type) -> dict[str, Any]:
        found = {name: inspect.signature(function) for name, function in methods(client)}
        return {name: [*signature.parameters] for name, signature in found.items()}

    blocking, asynchronous = getattr(qbus, name), getattr(aio, name)
    assert list(options(blocking)) == list(options(asynchronous))
    assert signatures(blocking) == signatures(asynchronous)


def test_the_table_of_errors_has_every_exception_that_users_import() -> None:
    table = (DOCS / "sdk" / "errors.md").read_text()
    errors = [name for name in qbus.__all__ if is_error(getattr(qbus, name))]
    assert errors
    for name in errors:
        assert f"| `{name}` |" in table


def test_every_page_is_in_the_index() -> None:
    index = (DOCS / "sdk" / "README.md").read_text()
    for page in (DOCS / "sdk").glob("*.md"):
        assert page.name == "README.md" or f"]({page.name})" in index

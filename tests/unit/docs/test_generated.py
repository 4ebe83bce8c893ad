"""The documentation says what the code says."""

import re
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import click
import pytest

from qbus.cli.root import qbus

from .generated import DOCS, PROSE, generated, pages


@pytest.mark.parametrize("page", list(pages()), ids=lambda page: page.name)
def test_generated_parts_are_current(page: Path) -> None:
    text = page.read_text()
    assert text == generated(text), "run: make docs"


def commands(command: click.Command, *path: str) -> Iterator[str]:
    """Yield every command that does something."""
    if not isinstance(command, click.Group):
        yield " ".join(path)
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from commands(found, *path, name)


def test_the_reference_has_every_command() -> None:
    text = (DOCS / "cli.md").read_text()
    assert re.findall(r"<!-- generated: help (.+?) -->", text) == list(commands(qbus))


@pytest.mark.parametrize("page", PROSE, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target


def examples() -> Iterator[tuple[str, list[str]]]:
    """Yield every `qbus` command line in the prose, split into words."""
    for page in PROSE:
        for block in re.findall(r"```sh\n(.*?)```", page.read_text(), re.DOTALL):
            for line in block.replace("\\\n", " ").splitlines():
                for part in re.split(r"[|<>#]|&&", line):
                    words = part.split()
                    if words[:1] == ["qbus"]:
                        yield f"{page.name}: {part.strip()}", words[1:]


@pytest.mark.parametrize(("line", "words"), list(examples()), ids=lambda value: str(value)[:60])
def test_example_commands_exist_with_their_options(line: str, words: list[str]) -> None:
    command: click.Command = qbus
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(click.Context(command), words.pop(0))
        assert found is not None, line
        command = found
    known = {
        name
        for parameter in command.params
        for name in (*parameter.opts, *parameter.secondary_opts)
    }
    own = takewhile(lambda word: word != "--", words)
    used = {word.partition("=")[0] for word in own if word.startswith("-") and len(word) > 1}
    assert used <= known | {"--help"}, line

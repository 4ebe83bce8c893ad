"""The configurations in the documentation of the mirror are ones."""

import re

import pytest

from qbus.clients.mirror.config import parse

from .generated import DOCS

EXAMPLES = re.findall(r"```toml\n(.*?)```", (DOCS / "mirror.md").read_text(), re.DOTALL)


def test_there_are_examples() -> None:
    assert EXAMPLES


@pytest.mark.parametrize("text", EXAMPLES, ids=lambda text: text.splitlines()[0][:40])
def test_a_mirror_takes_the_example(text: str) -> None:
    parse(text.encode())

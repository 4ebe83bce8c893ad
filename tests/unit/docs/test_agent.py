"""The configurations in the documentation of the agent are ones."""

import re

import pytest

from qbus.agent.config import parse

from .generated import DOCS

EXAMPLES = re.findall(r"```toml\n(.*?)```", (DOCS / "agent.md").read_text(), re.DOTALL)


def test_there_are_examples() -> None:
    assert EXAMPLES


@pytest.mark.parametrize("text", EXAMPLES, ids=lambda text: text.splitlines()[0][:40])
def test_an_agent_takes_the_example(text: str) -> None:
    parse(text.encode())

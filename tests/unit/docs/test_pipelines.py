"""The configurations in the documentation of the pipelines are ones."""

import re
import tomllib

import pytest

from qbus.clients.pipelines.config import LOADERS

from .generated import DOCS

EXAMPLES = re.findall(
    r"```toml\n# (\w+)\.toml\n(.*?)```", (DOCS / "pipelines.md").read_text(), re.DOTALL
)


def test_there_are_examples() -> None:
    assert EXAMPLES


@pytest.mark.parametrize(("name", "text"), EXAMPLES)
def test_a_pipeline_takes_the_example(name: str, text: str) -> None:
    LOADERS[name].read(tomllib.loads(text))

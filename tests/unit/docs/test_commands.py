"""The commands of the documentation do no harm where they are typed: at the top of a checkout."""

import re

from .generated import PROSE, ROOT

_DIRECTORY = re.compile(r"--(?:data-dir|path|archive) \./([\w-]+)")


def test_the_directories_of_examples_are_none_of_the_source() -> None:
    named = {name for page in PROSE for name in _DIRECTORY.findall(page.read_text())}
    assert {"data", "cluster"} <= named
    assert not {name for name in named if (ROOT / name).exists()}

"""Every picture is the one of its source, and is shown somewhere."""

from pathlib import Path

import pytest

from .generated import PROSE
from .pictures import digest, sources


@pytest.mark.parametrize("source", list(sources()), ids=lambda source: source.stem)
def test_a_picture_is_made_from_its_source(source: Path) -> None:
    assert digest(source) in source.with_suffix(".svg").read_text(), "run: make docs"


@pytest.mark.parametrize("source", list(sources()), ids=lambda source: source.stem)
def test_a_picture_is_on_a_page(source: Path) -> None:
    assert any(f"{source.stem}.svg)" in page.read_text() for page in PROSE)

"""The page on Spark says what there is."""

import re
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from qbus.clients.spark.options import REFUSED
from qbus.clients.spark.schema import source_schema
from qbus.clients.spark.source.options import SOURCE_OPTIONS

PAGE = (Path(__file__).parents[3] / "docs" / "spark.md").read_text()


def first_cells(heading: str) -> set[str]:
    """The names in the first column of the table below a heading."""
    section = PAGE.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return {name for cell in rows for name in re.findall(r"`([^`]+)`", cell)}


def test_the_options_of_the_source_are_all_there() -> None:
    assert first_cells("Options of the source") == set(SOURCE_OPTIONS)


def test_the_columns_are_all_there() -> None:
    assert first_cells("Columns") == set(source_schema(include_headers=True).names)


def test_nothing_that_is_refused_is_offered() -> None:
    assert not {name.lower() for name in SOURCE_OPTIONS} & REFUSED.keys()

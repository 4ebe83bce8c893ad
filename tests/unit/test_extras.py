"""What is missing is installed by one command, beside the Qbus that misses it."""

import re
import shlex
import sys
from importlib import metadata
from pathlib import Path

import pytest

from qbus import extras

ROOT = Path(__file__).parents[2]
SOURCES = ("qbus", "broker", "clients", "agent")


def test_pip_of_this_python_adds_the_extra_to_the_installed_qbus() -> None:
    said = extras.lacks("Arrow needs pyarrow", "arrow")

    assert said == (
        f"Arrow needs pyarrow: {shlex.quote(sys.executable)} -m pip install 'qbus[arrow]'"
    )


def test_where_qbus_is_not_installed_the_sources_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", version)

    assert extras.pip_install("arrow").endswith(shlex.quote(f"{ROOT}[arrow]"))


def test_every_extra_that_an_error_names_exists() -> None:
    named = {
        extra
        for folder in SOURCES
        for path in (ROOT / folder).rglob("*.py")
        for extra in re.findall(r'\blacks\("[^"]+", "(\w+)"\)', path.read_text())
    }

    assert named == {"agent", "arrow", "spark", "testing", "zookeeper"}
    assert named <= set(metadata.metadata("qbus").get_all("Provides-Extra", []))


def test_no_other_place_makes_the_sentence() -> None:
    written = [
        str(path.relative_to(ROOT))
        for folder in SOURCES
        for path in (ROOT / folder).rglob("*.py")
        if ": pip install" in path.read_text()
    ]

    assert written == []


def test_documents_build_qbus_again_only_where_it_is_not_installed() -> None:
    found = [
        line.strip()
        for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
        for line in path.read_text().splitlines()
        if "pip install '.[" in line
    ]

    assert found == [
        "pip install '.[spark]'         # where Qbus is installed already:"
        " pip install 'qbus[spark]', which builds nothing again",
        "python3 -m venv /tmp/env && /tmp/env/bin/pip install '.[spark]' venv-pack",
    ]

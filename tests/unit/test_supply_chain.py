"""The lock files: complete, with hashes, and without a word of where packages come from."""

import configparser
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCKS = {
    "runtime": ("zookeeper", "agent"),
    "spark": ("zookeeper", "spark"),
    "test": ("zookeeper", "agent", "spark", "testing", "test", "check"),
}
_PINNED = re.compile(r"^([a-z0-9-]+)(?:\[[a-z,]+\])?==[^ ;\\]+", re.MULTILINE)


def lock(name: str) -> str:
    return (ROOT / "requirements" / f"{name}.txt").read_text()


def names(requirements: str) -> set[str]:
    """The packages that requirements name, as an index writes them."""
    found = re.findall(r"(?m)^\s*([A-Za-z0-9_.-]+)", requirements)
    return {re.sub(r"[-_.]+", "-", name).lower() for name in found}


@pytest.mark.parametrize("name", [*LOCKS, "build", "supply"])
def test_every_package_has_one_version_and_hashes(name: str) -> None:
    text = lock(name)
    entries = re.split(r"\n(?=\S)", text)[1:]
    assert entries
    for entry in entries:
        assert _PINNED.match(entry), entry[:80]
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), entry[:80]


@pytest.mark.parametrize("name", [*LOCKS, "build", "supply"])
def test_no_index_is_named(name: str) -> None:
    assert not re.search(r"://|--index-url|--extra-index|--find-links|@ file", lock(name))


@pytest.mark.parametrize(("name", "extras"), LOCKS.items())
def test_all_that_setup_asks_for_is_locked(name: str, extras: tuple[str, ...]) -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    asked = names(config["options"]["install_requires"])
    for extra in extras:
        asked |= names(config["options.extras_require"][extra])
    missing = asked - set(_PINNED.findall(lock(name)))
    assert not missing, "make lock"


def test_the_tools_about_packages_are_locked() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    asked = names(config["options.extras_require"]["supply"])
    assert asked <= set(_PINNED.findall(lock("supply")))


def test_what_wheels_are_built_with_is_locked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    asked = names("\n".join(project["build-system"]["requires"]))
    assert asked <= set(_PINNED.findall(lock("build")))

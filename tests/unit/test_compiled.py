"""Which form of the hot modules a process runs: compiled, if that is what the sources say."""

import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from qbus import compiled


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package as a build leaves it; its directory of what is compiled."""
    for module in compiled.MODULES:
        source = tmp_path / compiled.source_of(module)
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(f"# {module}\n")
    directory = tmp_path / "qbus" / compiled.DIRECTORY
    directory.mkdir()
    for name in (*compiled.openers().values(), f"{compiled.LIBRARY}__mypyc"):
        (directory / f"{name}{EXTENSION_SUFFIXES[0]}").touch()
    (directory / compiled.STAMP).write_text(compiled.stamp(str(tmp_path)))
    monkeypatch.setattr(compiled, "_PACKAGE", str(tmp_path / "qbus"))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.delenv("QBUS_COMPILED", raising=False)
    return directory


def test_what_is_compiled_is_found_before_its_sources(build: Path) -> None:
    assert compiled._choose() == ""
    (finder, *_) = sys.meta_path
    for name, library in compiled.openers().items():
        spec = finder.find_spec(name, None)
        assert spec is not None
        assert spec.origin == str(build / f"{library}{EXTENSION_SUFFIXES[0]}")
    assert finder.find_spec("qbus.errors", None) is None


def test_an_installed_one_has_no_stamp_and_is_taken(build: Path) -> None:
    (build / compiled.STAMP).unlink()
    assert compiled._choose() == ""


def test_the_environment_may_ask_for_sources(build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QBUS_COMPILED", "0")
    assert compiled._choose() == "QBUS_COMPILED is 0"


def test_sources_that_have_changed_run_as_they_are(build: Path) -> None:
    changed = build.parents[1] / compiled.source_of(compiled.MODULES[3])
    changed.write_text("# another one\n")
    assert "make compile" in compiled._choose()
    changed.unlink()
    assert "make compile" in compiled._choose()


def test_a_change_that_keeps_the_size_is_seen(build: Path) -> None:
    changed = build.parents[1] / compiled.source_of(compiled.MODULES[0])
    os.utime(changed, ns=(1, 1))
    assert "make compile" in compiled._choose()


def test_what_another_python_compiled_is_passed_over(build: Path) -> None:
    for library in build.glob("*.so"):
        library.rename(library.with_name(library.name.replace("cpython-3", "cpython-2")))
    assert compiled._choose() == "nothing is compiled for this Python"


def test_half_a_build_is_none(build: Path) -> None:
    (build / f"{compiled.LIBRARY}__1{EXTENSION_SUFFIXES[0]}").unlink()
    assert compiled._choose() == "nothing is compiled for this Python"


def test_nothing_compiled(build: Path) -> None:
    for found in build.iterdir():
        found.unlink()
    build.rmdir()
    assert compiled._choose() == "nothing is compiled here"


def test_no_two_modules_of_one_library_are_begun_by_functions_of_one_name() -> None:
    names = [(library, name.split(".")[-1]) for name, library in compiled.openers().items()]
    assert len(names) == len({*names}) == len(compiled.MODULES)


def test_every_module_of_the_table_is_there() -> None:
    root = Path(compiled.__file__).parents[1]
    assert [one for one in compiled.MODULES if not (root / compiled.source_of(one)).exists()] == []
    assert list(compiled.MODULES) == sorted(set(compiled.MODULES), key=compiled.MODULES.index)

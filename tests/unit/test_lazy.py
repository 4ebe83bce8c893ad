"""Names of a package whose modules are imported when they are first used."""

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

PACKAGE = "a_lazy_package"
SOURCE = """
from qbus.lazy import lazily

__all__ = ["Heavy", "Light", "missing"]
__getattr__, __dir__ = lazily(__name__, __all__, {"Heavy": ".heavy"}, (".light", ".broken"))
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    directory = tmp_path / PACKAGE
    directory.mkdir()
    (directory / "__init__.py").write_text(SOURCE)
    (directory / "heavy.py").write_text("class Heavy: ...")
    (directory / "light.py").write_text("class Light: ...\nprivate = 1")
    (directory / "broken.py").write_text("import a_module_that_is_not_there")
    monkeypatch.syspath_prepend(tmp_path)
    yield import_module(PACKAGE)
    for name in [name for name in sys.modules if name.startswith(PACKAGE)]:
        del sys.modules[name]


def is_imported(module: str) -> bool:
    return f"{PACKAGE}.{module}" in sys.modules


def test_nothing_is_imported_before_it_is_used(package: ModuleType) -> None:
    assert "Light" in dir(package)
    assert not is_imported("heavy")
    assert not is_imported("light")


def test_a_name_with_a_home_imports_that_alone(package: ModuleType) -> None:
    assert package.Heavy.__module__ == f"{PACKAGE}.heavy"
    assert not is_imported("light")


def test_other_names_are_looked_for_in_turn(package: ModuleType) -> None:
    assert package.Light.__module__ == f"{PACKAGE}.light"
    assert not is_imported("heavy")


def test_a_name_is_found_once(package: ModuleType) -> None:
    assert package.Light is package.Light
    assert "Light" in vars(package)


def test_what_is_not_public_is_not_looked_for(package: ModuleType) -> None:
    with pytest.raises(AttributeError, match=f"'{PACKAGE}' has no attribute 'private'"):
        package.private  # noqa: B018 - asking is what is tested


def test_a_module_that_cannot_be_imported_says_so(package: ModuleType) -> None:
    with pytest.raises(ModuleNotFoundError, match="a_module_that_is_not_there"):
        package.missing  # noqa: B018 - asking is what is tested

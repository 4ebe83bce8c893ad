"""Tables of TOML as dataclasses: what is stated, what is not, and what is refused."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from qbus.errors import ConfigError
from qbus.service import toml
from qbus.service.toml import required, rules, setting


def _no_x(text: str) -> None:
    if "x" in text:
        raise ConfigError("there is an x")


@dataclass(frozen=True, kw_only=True)
class Wheel:
    size: int = required(rules.whole(1, 9), "How large.")


@dataclass(frozen=True, kw_only=True)
class Car:
    name: str = setting("", rules.checked("no x", _no_x), "What it is called.")
    fast: bool = setting(False, rules.boolean(), "Whether it is.")
    kind: str = setting("van", rules.choice("van", "bus"), "Which one.")
    home: str = setting("/", rules.path(), "Where it is.")
    price: float = setting(1.0, rules.real(0, 10), "What it costs.")
    trips: tuple[int, ...] = setting((), rules.listed(rules.whole(1, 9), "some trips"), "How far.")
    plate: str = setting("", rules.regex(), "What its plates are like.")
    wheels: tuple[Wheel, ...] = setting((), rules.tables(Wheel), "Wheels.", table="wheel")


def read(text: str) -> Car:
    return toml.read_fields(Car, toml.parse(text.encode()))


def test_what_is_not_stated_has_its_default() -> None:
    assert read("") == Car(name="", fast=False, kind="van", home="/", wheels=())


def test_tables_are_classes_of_their_own() -> None:
    found = read('name = " T "\nfast = true\n[[wheel]]\nsize = 1\n[[wheel]]\nsize = 2')
    assert found == Car(name="T", fast=True, wheels=(Wheel(size=1), Wheel(size=2)))


def test_what_is_written_is_read_back() -> None:
    car = Car(name="T", kind="bus", price=0.5, trips=(1, 2), wheels=(Wheel(size=3),))
    assert read(toml.to_toml(car)) == car


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('name = "axe"', "name = 'axe': expected no x: there is an x"),
        ("name = 1", "name = 1: expected no x"),
        ('name = "\\u0000"', "it holds a NUL character"),
        ("fast = 0", "fast = 0: expected true or false"),
        ('kind = "bike"', "kind = 'bike': expected one of van, bus"),
        ('home = "here"', "home = 'here': expected an absolute path"),
        ("price = 11", "price = 11: expected a number from 0 to 10"),
        ("price = true", "price = true: expected a number"),
        ("price = nan", "price = nan: expected a number"),
        ("trips = 3", "trips = 3: expected some trips"),
        ("trips = [3, 10]", r"trips = \[3, 10\]: expected some trips: 10 is none"),
        ('plate = "("', r"plate = '\(': expected a regular expression: "),
        ("wheel = 3", "wheel = 3: expected tables"),
        ("[[wheel]]", r"wheel\[1\]\.size is missing: expected a whole number from 1 to 9"),
        ("[[wheel]]\nsize = 0", r"wheel\[1\]\.size = 0: expected a whole number from 1 to 9"),
        ("[[wheel]]\nsize = true", r"wheel\[1\]\.size = true"),
        ("wheels = []", "wheels: no such field; did you mean wheel"),
        ("zzz = 1", "zzz: no such field; there are name, fast"),
        ("x = ", "not TOML"),
    ],
)
def test_what_is_not_allowed_is_refused_by_name(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        read(text)


def test_a_refused_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "car.toml"
    with pytest.raises(ConfigError, match=r"cannot read .*car\.toml: No such file"):
        toml.read_file(path, toml.parse)
    path.write_text("x = ")
    with pytest.raises(ConfigError, match=r"car\.toml: not TOML"):
        toml.read_file(path, toml.parse)


def _named(car: Car) -> Car:
    if not car.name:
        raise ConfigError("a car needs a name")
    return car


def test_a_loader_lays_the_document_over_defaults_and_overrides_over_both(tmp_path: Path) -> None:
    loader = toml.Loader(Car, _named)
    (tmp_path / "car").write_text('kind = "bus"\nhome = "/there"')
    car = loader.load(
        tmp_path / "car",
        defaults={"name": "a", "kind": "van", "fast": True},
        overrides={"home": "/here"},
    )
    assert (car.name, car.kind, car.fast, car.home) == ("a", "bus", True, "/here")


def test_a_loader_checks_the_whole_and_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "car").write_text("")
    with pytest.raises(ConfigError, match="car: a car needs a name"):
        toml.Loader(Car, _named).load(tmp_path / "car")


def test_merged_tables_keep_what_the_upper_one_does_not_state() -> None:
    below = {"target": {"idc": "b", "port": 1}, "topics": ["x"]}
    above = {"target": {"port": 2}, "topics": ["y"]}
    assert toml.merged(below, above) == {"target": {"idc": "b", "port": 2}, "topics": ["y"]}

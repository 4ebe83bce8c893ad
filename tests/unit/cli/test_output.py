"""JSON for machines, tables for people."""

import json

import pytest

from qbus.cli.output import emit, json_line, note, table


def test_json_is_one_line_of_utf8() -> None:
    assert json_line({"name": "журнал"}) == '{"name": "журнал"}'.encode()


def test_surrogates_are_still_json() -> None:
    assert json.loads(json_line({"name": "\udcff"})) == {"name": "?"}


def test_json_is_the_only_output(capsys: pytest.CaptureFixture[str]) -> None:
    emit({"a": 1}, lambda _: "for people", as_json=True)
    note("a remark")
    captured = capsys.readouterr()
    assert captured.out == '{"a": 1}\n'
    assert captured.err == "a remark\n"


def test_tables_are_made_of_the_same_document(capsys: pytest.CaptureFixture[str]) -> None:
    emit({"a": 1}, lambda document: f"a is {document['a']}", as_json=False)
    assert capsys.readouterr().out == "a is 1\n"


def test_a_table_that_is_piped_is_never_cut(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = "x" * 500
    emit(None, lambda _: table("name", "#count", rows=[(wide, 5), ("y", None)]), as_json=False)
    header, first, second = capsys.readouterr().out.splitlines()
    assert header.split() == ["name", "count"]
    assert first.split() == [wide, "5"]
    assert second.split() == ["y", "-"]


def test_cells_say_yes_no_and_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    emit(None, lambda _: table("a", "b", "c", "d", rows=[(True, False, [], [1, 2])]), as_json=False)
    assert capsys.readouterr().out.splitlines()[1].split() == ["yes", "no", "-", "1,2"]


def test_names_are_not_read_as_markup(capsys: pytest.CaptureFixture[str]) -> None:
    emit(None, lambda _: "Deleted group [red]x[/] :smile:.", as_json=False)
    assert capsys.readouterr().out == "Deleted group [red]x[/] :smile:.\n"


def test_a_line_that_is_piped_has_no_blanks_at_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    emit(None, lambda _: table("#count", "name", rows=[(1, "long name"), (2, "y")]), as_json=False)
    assert capsys.readouterr().out == "count  name\n    1  long name\n    2  y\n"

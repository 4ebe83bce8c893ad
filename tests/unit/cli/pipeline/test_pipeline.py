"""What the commands of pipelines make of their options, before any Spark starts."""

import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from qbus.cli.pipeline.options import stated
from qbus.cli.pipeline.watcher import Terminal
from qbus.cli.root import qbus


def failure(*words: str) -> str:
    result = CliRunner().invoke(qbus, ["pipeline", *words])
    assert result.exit_code != 0
    assert result.stdout == ""
    return result.stderr


def test_only_what_was_chosen_is_stated_where_it_belongs() -> None:
    chosen = {"a": 1, "b.c": ("x",), "b.d": None, "e": (), "f": {}, "g": False}
    assert stated(chosen) == {"a": 1, "b": {"c": ["x"]}, "g": False}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("archive",), "source.topics or source.pattern: expected one of them"),
        (("archive", "--topic", "t"), "path is missing"),
        (("stats", "--topic", "t", "--window", "soon"), "statistic[1].window = 'soon'"),
        (("stats", "--topic", "t", "--once", "--batch"), "--once or --batch"),
        (("stats", "--topic", "t", "--by", "colour"), "there is no field colour"),
        (("abuse", "--topic", "t"), "nothing to detect"),
        (("audit", "--topic", "t"), "copy.archive or copy.bootstrap"),
        (("archive", "--config", "/no/such.toml"), "cannot read /no/such.toml"),
    ],
)
def test_what_is_wrong_is_named_before_spark_starts(words: tuple[str, ...], message: str) -> None:
    assert message in failure(*words)


def test_a_broker_that_is_away_is_named_before_spark_starts() -> None:
    words = ("archive", "--topic", "t", "--path", "/a", "--bootstrap", "127.0.0.1:1")
    assert "cannot reach a broker at 127.0.0.1:1" in failure(*words)


@pytest.mark.parametrize("name", ["archive", "stats", "abuse", "audit"])
def test_the_file_for_spark_submit_is_there_and_explains_itself(name: str) -> None:
    import sys

    path = Path(CliRunner().invoke(qbus, ["pipeline", "file", name]).stdout.strip())
    assert path.name == f"{name}.py"
    done = subprocess.run([sys.executable, path, "--help"], capture_output=True, check=True)
    assert b"--config" in done.stdout


def test_results_are_tables_or_objects(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"path": "/", "count": 3, "per_second": 0.1}]
    with Terminal(as_json=False) as terminal:
        terminal.rows(rows)
    assert capsys.readouterr().out.split() == ["path", "count", "per_second", "/", "3", "0.1"]
    with Terminal(as_json=True) as terminal:
        terminal.rows(rows)
    assert json.loads(capsys.readouterr().out) == rows[0]

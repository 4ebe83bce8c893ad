"""What the commands of pipelines make of their options, before any Spark starts."""

import json
import subprocess
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
from click.testing import CliRunner

from qbus.cli.pipeline.options import stated
from qbus.cli.pipeline.watcher import Terminal
from qbus.cli.root import qbus
from qbus.cli.targets import Target


def failure(*words: str) -> str:
    result = CliRunner().invoke(qbus, ["pipeline", *words])
    assert result.exit_code != 0
    assert result.stdout == ""
    return result.stderr


def test_only_chosen_options_are_stated() -> None:
    chosen = {"a": 1, "b.c": ("x",), "b.d": None, "e": (), "f": {}, "g": False}
    assert stated(chosen) == {"a": 1, "b": {"c": ["x"]}, "g": False}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("archive",), "set either source.topics or source.pattern"),
        (("archive", "--topic", "t"), "path is missing"),
        (("stats", "--topic", "t", "--window", "soon"), "statistic[1].window = 'soon'"),
        (("stats", "--topic", "t", "--once", "--batch"), "--once or --batch"),
        (("stats", "--topic", "t", "--by", "colour"), "there is no field colour"),
        (("abuse", "--topic", "t"), "nothing to detect"),
        (("audit", "--topic", "t"), "copy.archive or copy.bootstrap"),
        (("archive", "--compact"), "path is missing"),
        (("archive", "--compact", "--path", "/a", "--once"), "--once: means nothing with"),
        (("archive", "--compact", "--path", "/a", "--topic", "t"), "--topic: means nothing with"),
        (("archive", "--topic", "t", "--path", "/a[1]"), "path = '/a[1]': expected none of"),
        (("stats", "--topic", "t", "--batch", "--starting", "latest"), "--starting: means nothing"),
        (("abuse", "--topic", "t", "--once", "--interval", "1s"), "--interval: means nothing"),
        (("stats", "--topic", "t", "--batch", "--checkpoint", "/c"), "--checkpoint: means nothing"),
        (("stats", "--topic", "t", "--percentile", "0.9"), "percentiles_of is missing"),
        (("stats", "--topic", "t", "--top-by", "per_second"), "expected top as well"),
        (("stats", "--topic", "t", "--time-format", "seconds"), "only lines of format json"),
        (("archive", "--config", "/no/such.toml"), "cannot read /no/such.toml"),
    ],
)
def test_errors_are_named_before_spark_starts(words: tuple[str, ...], message: str) -> None:
    assert message in failure(*words)


def test_a_broker_that_is_away_is_named_before_spark_starts() -> None:
    words = ("archive", "--topic", "t", "--path", "/a", "--bootstrap", "127.0.0.1:1")
    assert "cannot reach a broker at 127.0.0.1:1" in failure(*words)


def test_a_copy_that_is_away_is_named_before_spark_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    from qbus.cli.pipeline import running

    asked = []

    async def reachable(target: Target) -> None:
        asked.append(target.bootstrap)
        if target.bootstrap == "127.0.0.1:2":
            raise click.ClickException("cannot reach it")

    monkeypatch.setattr(running, "ensure_reachable", reachable)
    words = ("audit", "--topic", "t", "--copy", "127.0.0.1:2", "--bootstrap", "127.0.0.1:1")
    assert "cannot reach it" in failure(*words)
    assert asked == ["127.0.0.1:1", "127.0.0.1:2"]


def test_secured_clusters_are_asked_as_they_want_to_be(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from qbus.cli.pipeline import running

    asked = []

    async def reachable(target: Target) -> None:
        asked.append((target.bootstrap, target.protocol))

    def stop(_: Target) -> None:
        raise click.ClickException("that is enough")

    monkeypatch.setattr(running, "ensure_reachable", reachable)
    monkeypatch.setattr(running, "administration", stop)
    config = tmp_path / "audit.toml"
    config.write_text(
        'bootstrap = "zk://z:1/a"\nsource.topics = ["t"]\nsecurity.protocol = "SSL"\n'
        '[copy]\nbootstrap = "zk://z:1/b"\n'
    )
    assert "that is enough" in failure("audit", "--config", str(config))
    assert asked == [("zk://z:1/a", "SSL"), ("zk://z:1/b", "PLAINTEXT")]


def test_a_topic_that_does_not_exist_is_named_before_spark_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from qbus.cli.pipeline import running

    class Topics:
        async def list_topics(self, *, internal: bool) -> list[SimpleNamespace]:
            assert internal
            return [SimpleNamespace(name="logs")]

    async def reachable(_: Target) -> None:
        pass

    def launch(*_: object, **__: object) -> None:
        raise click.ClickException("Spark starts")

    monkeypatch.setattr(running, "ensure_reachable", reachable)
    monkeypatch.setattr(running, "administration", lambda _: nullcontext(Topics()))
    monkeypatch.setattr("qbus.clients.pipelines.launch.launch", launch)
    archive = ("archive", "--path", "/a", "--topic")
    told = "there is no topic lgos: create the topic first, or check its name"
    assert told in failure(*archive, "lgos")
    assert "Spark starts" in failure(*archive, "lgos", "--topic", "logs")
    assert "Spark starts" in failure("archive", "--path", "/a", "--pattern", "lgos")


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


def test_an_archive_is_compacted_without_topics_and_brokers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from qbus.clients.pipelines import launch as module

    launched: list[object] = []

    def launch(name: str, config: object, *_: object, **__: object) -> int:
        launched.extend([name, config.path])  # type: ignore[attr-defined]
        return 7

    monkeypatch.setattr(module, "launch", launch)
    words = ["pipeline", "archive", "--compact", "--path", "/a", "--json"]
    result = CliRunner().invoke(qbus, words, env={"QBUS_BOOTSTRAP": "127.0.0.1:1"})
    assert launched == ["compact", "/a"]
    assert json.loads(result.stdout) == {"replaced": 7}


def test_an_audit_reports_skipped_offsets() -> None:
    from qbus.cli.pipeline.audit import audit_report

    document = {
        "equal": True, "records": 5, "partitions": [{}], "intervals": [{}],
        "skipped_left": 1200, "skipped_right": 0, "uncompared": [],
    }  # fmt: skip
    told = str(audit_report(document)).splitlines()
    assert told[0] == "Equal: 5 records in 1 partition, 1 interval."
    assert told[1].startswith("Not compared: 1,200 offsets of the original and 0 of the copy")
    assert len(str(audit_report({**document, "skipped_left": 0})).splitlines()) == 1


@pytest.mark.parametrize(
    ("intervals", "exit_code", "words"),
    [
        ([], 4, "Nothing was compared: 1 partition without a record in the chosen time."),
        ([{"equal": True}], 0, "Equal: 1 record in 1 partition, 1 interval."),
    ],
)
def test_an_audit_that_compares_nothing_has_words_and_an_exit_code(
    intervals: list[dict[str, bool]],
    exit_code: int,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from qbus.clients.pipelines.audit.report import KINDS, Report

    place = {"topic": "t", "partition": 0, "skipped_left": 0, "skipped_right": 0}
    sums = dict.fromkeys(KINDS, 0) | {"topic": "t", "left_count": 1, "right_count": 1}
    report = Report("a", "b", [place], [sums | row for row in intervals])
    monkeypatch.setattr("qbus.cli.pipeline.running.run_pipeline", lambda *_: report)
    result = CliRunner().invoke(qbus, ["pipeline", "audit", "--topic", "t", "--settle", "10m"])
    assert result.exit_code == exit_code
    assert result.stdout.startswith(words)

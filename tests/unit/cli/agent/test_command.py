"""`qbus agent`: command lines that make sense, those that do not, and what is shown."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from qbus.agent.config import parse
from qbus.cli.agent.config import from_paths
from qbus.cli.root import qbus

GOOD = 'bootstrap = "h:9"\ntopic = "t"\n[[source]]\npaths = ["/a.log"]\n'


def run(*arguments: str) -> Result:
    return CliRunner().invoke(qbus, ["agent", *arguments])


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((), "Name PATHs, or --config, or --zookeeper: one of them."),
        (("/a", "--config", "x.toml"), "one of them"),
        (("--config", "x.toml", "--zookeeper", "z"), "one of them"),
        (("/a",), "PATHs need --bootstrap and --topic."),
        (("/a", "--bootstrap", "h:9"), "PATHs need --bootstrap and --topic."),
        (("--config", "x.toml", "--topic", "t"), "These options go with PATHs"),
        (("/a", "--bootstrap", "h:x", "--topic", "t"), "is not host:port"),
        (("/a", "--bootstrap", "h:9", "--topic", "t/u"), "topic = 't/u': expected the name"),
        (("/a", "--bootstrap", "h:9", "--topic", "t", "--key", "{x}"), "key = '{x}': expected"),
        (("/a", "--bootstrap", "h:9", "--topic", "t", "--header", "x"), "key=value"),
        (("--zookeeper", "h:x"), "expected host:port"),
        (("--config", "x", "--metrics-listen", "h"), "--metrics-listen 'h': expected host:port"),
        (("--config", "x", "--metrics-config", "m"), "--metrics-config goes with --metrics-listen"),
    ],
)
def test_an_invalid_command_line_is_a_usage_error(arguments: tuple[str, ...], why: str) -> None:
    result = run("run", *arguments)
    assert result.exit_code == 2
    assert why in " ".join(result.stderr.split())


def test_metrics_that_others_could_read_are_refused() -> None:
    result = run("run", "--config", "x", "--metrics-listen", "0.0.0.0:9404")
    assert result.exit_code == 1
    assert "users.location=FILE in --metrics-config" in " ".join(result.stderr.split())


def test_a_missing_file_is_a_failure(tmp_path: Path) -> None:
    result = run("run", "--config", str(tmp_path / "none"), "--data-dir", str(tmp_path / "data"))
    assert result.exit_code == 1
    assert "cannot read" in result.stderr


def test_paths_become_a_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = {'a "b"': "{path}", "c\\d": "100%"}
    text = from_paths(["x/*.log", "/ü.log"], "h:9", "t", True, ["*.gz"], "{host}\t", names)
    config = parse(text)
    (source,) = config.sources
    assert source.paths == (f"{tmp_path}/x/*.log", "/ü.log")
    assert (source.exclude, source.from_beginning) == (("*.gz",), True)
    assert str(source.key) == "{host}\t"
    assert {name: str(template) for name, template in source.headers} == names


def test_a_file_of_properties_says_how_to_connect(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.username=a\nsasl.password=secret\n"
    )
    text = from_paths(["/a.log"], "h:9", "t", False, [], None, {}, file)
    assert b"secret" not in text
    security = parse(text).security.security()
    assert (security.protocol, security.sasl_username) == ("SASL_SSL", "a")


def test_a_good_file_is_shown_with_its_defaults(tmp_path: Path) -> None:
    path = tmp_path / "agent.toml"
    path.write_text(GOOD)
    shown = run("config", "check", str(path))
    assert shown.exit_code == 0
    assert parse(shown.stdout.encode()) == parse(GOOD.encode())
    document = json.loads(run("config", "check", str(path), "--json").stdout)
    assert document["delivery"]["compression"] == "lz4"


def test_a_bad_file_is_refused_with_place_and_reason(tmp_path: Path) -> None:
    path = tmp_path / "agent.toml"
    path.write_text(GOOD + "gzip = 3\n")
    result = run("config", "check", str(path))
    assert result.exit_code == 1
    assert "agent.toml: source[1].gzip = 3: expected true or false" in result.stderr


def test_only_a_central_configuration_may_leave_out_where_the_brokers_are(tmp_path: Path) -> None:
    path = tmp_path / "agent.toml"
    path.write_text(GOOD.partition("\n")[2])
    assert run("config", "check", str(path)).exit_code == 1
    assert run("config", "check", "--central", str(path)).exit_code == 0


@pytest.mark.parametrize("command", [("status",), ("files",), ("config", "get", "a")])
def test_it_has_to_be_said_where_agents_are_controlled(command: tuple[str, ...]) -> None:
    result = run(*command)
    assert result.exit_code == 2
    assert "--zookeeper" in result.stderr


STATUS = {
    "name": "web-1",
    "host": "h",
    "configuration": {
        "in_force": "/agents/web/config",
        "version": 3,
        "refused": "/agents/web/config",
        "refused_version": 4,
        "reason": "it is [red]bad[/red]",
    },
    "error": "brokers are away",
    "totals": {
        "files": 2, "failed": 1, "lag_bytes": 2048, "lag_seconds": 1.5, "rate": 10.0,
        "records": 7, "spool_bytes": 0,
    },
    "spools": [{"directory": "/spool", "error": "no", "damaged": 2}],
    "files": [
        {
            "path": "/log/\udcff.log", "topic": "t", "state": "failed", "position": 5, "size": 9,
            "lag_bytes": 4, "lag_seconds": 0.5, "rate": 1.0, "error": "Permission denied",
        }
    ],
    "files_left_out": 9,
}  # fmt: skip


@pytest.fixture
def data_dir(tmp_path: Path) -> str:
    (tmp_path / "status.json").write_text(json.dumps(STATUS))
    return str(tmp_path)


def test_the_status_shows_errors(data_dir: str) -> None:
    shown = run("status", "--data-dir", data_dir).stdout
    assert "web-1 (not running)" in shown
    assert "/agents/web/config v4 is rejected: it is [red]bad[/red]" in shown
    for trouble in ("brokers are away", "spool /spool: no", "2 damaged files", "2.0 KB"):
        assert trouble in shown


def test_the_status_as_json_leaves_out_the_files(data_dir: str) -> None:
    (document,) = json.loads(run("status", "--data-dir", data_dir, "--json").stdout)
    assert document["running"] is False
    assert "files" not in document


def test_files_are_shown_whatever_they_are_called(data_dir: str) -> None:
    shown = run("files", "--data-dir", data_dir).stdout
    assert shown.startswith("web-1 (not running)")
    assert "/log/?.log" in shown
    assert "Permission denied" in shown
    assert "9 more files" in shown


def test_a_directory_without_an_agent_is_a_failure(tmp_path: Path) -> None:
    result = run("status", "--data-dir", str(tmp_path))
    assert result.exit_code == 1
    assert "no agent has run" in result.stderr


@pytest.mark.parametrize("command", ["status", "files"])
def test_both_ways_to_find_agents_are_named(command: str) -> None:
    result = run(command)
    assert result.exit_code == 2
    assert "Name --zookeeper for the agents that are connected, or --data-dir" in result.stderr

"""Which cluster a command talks to, and what a context remembers of it."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

from qbus.cli import completing
from qbus.cli.contexts import Context, Contexts, is_kept, learn
from qbus.cli.failures import Failure
from qbus.cli.options import client_command
from qbus.cli.root import qbus
from qbus.cli.targets import Target


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("QBUS_BOOTSTRAP", raising=False)
    monkeypatch.delenv("QBUS_COMMAND_CONFIG", raising=False)
    return tmp_path / "qbus" / "contexts.json"


@click.command()
@client_command
async def show(*, target: Target, as_json: bool) -> None:
    """Show what a command is given."""
    click.echo(target.bootstrap)


def shown(*arguments: str, **environment: str) -> str:
    result = CliRunner().invoke(show, arguments, env=environment)
    return result.output.strip()


def run(*arguments: str) -> Result:
    return CliRunner().invoke(qbus, ["context", *arguments])


def listed() -> Sequence[dict[str, Any]]:
    document: Sequence[dict[str, Any]] = json.loads(run("list", "--json").stdout)
    return document


def test_without_contexts_a_command_talks_to_this_machine() -> None:
    assert shown() == "127.0.0.1:9092"
    assert run("list").stderr.startswith("No contexts yet: make one with")


def test_the_context_that_was_used_last_counts() -> None:
    assert run("use", "prod", "--bootstrap", "a:1,b:2").stdout == (
        "Commands talk to prod (a:1,b:2) from now on.\n"
    )
    run("use", "test", "--bootstrap", "zk://z:2181/qbus")
    assert shown() == "zk://z:2181/qbus"
    run("use", "prod")
    assert shown() == "a:1,b:2"
    assert [(c["name"], c["current"]) for c in listed()] == [("prod", True), ("test", False)]


def test_what_is_said_here_counts_before_what_was_said_elsewhere() -> None:
    run("use", "test", "--bootstrap", "t:1")
    run("use", "prod", "--bootstrap", "p:1")
    assert shown(QBUS_CONTEXT="test") == "t:1"
    assert shown(QBUS_CONTEXT="test", QBUS_BOOTSTRAP="e:1") == "e:1"
    assert shown("--context", "test", QBUS_BOOTSTRAP="e:1") == "t:1"
    assert shown("--bootstrap", "c:1", QBUS_CONTEXT="test", QBUS_BOOTSTRAP="e:1") == "c:1"
    assert "Name either --bootstrap or --context." in shown("--bootstrap", "c", "--context", "x")


def test_an_unknown_context_names_those_there_are() -> None:
    run("use", "prod", "--bootstrap", "p:1")
    assert "there is no context text; there are: prod" in shown("--context", "text")
    assert run("use", "text").stderr == (
        "qbus: there is no context text yet: make it with"
        " 'qbus context use text --bootstrap HOST:PORT'\n"
    )
    assert run("delete", "text").exit_code == 1


def test_a_deleted_context_is_not_used() -> None:
    run("use", "prod", "--bootstrap", "p:1")
    assert run("delete", "prod").stdout == "Forgot context prod.\n"
    assert shown() == "127.0.0.1:9092"
    assert listed() == []


def test_the_cluster_s_other_brokers_are_remembered(home: Path) -> None:
    run("use", "prod", "--bootstrap", "a:1, b:2")
    run("use", "zk", "--bootstrap", "zk://z:2181/qbus")
    learn("a:1,b:2", ["c:3", "b:2"])
    learn("zk://z:2181/qbus", ["c:3"])
    assert Contexts.load().all == {
        "prod": Context("a:1, b:2", ("b:2", "c:3")),
        "zk": Context("zk://z:2181/qbus", ("c:3",)),
    }
    assert shown("--context", "prod") == "a:1,b:2,c:3"
    assert shown("--context", "zk") == "zk://z:2181/qbus", "ZooKeeper knows better"
    written = home.stat().st_mtime_ns
    learn("a:1,b:2,c:3", ["b:2", "c:3"])
    assert home.stat().st_mtime_ns == written, "nothing new is not written"


def test_nothing_is_remembered_of_a_cluster_without_a_context(home: Path) -> None:
    learn("a:1", ["b:2"])
    assert not home.exists()
    assert not is_kept("a:1")


def test_brokers_that_cannot_be_remembered(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run("use", "prod", "--bootstrap", "a:1")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", str(home))

    monkeypatch.setattr(Contexts, "save", full)
    learn("a:1", ["b:2"])
    assert "the cluster's brokers are not remembered: " in capsys.readouterr().err


@pytest.mark.parametrize(
    "content", [b"{", b"[]", b"{}", b'{"contexts": 1}', b'{"contexts": {"a": {}}, "current": "a"}']
)
def test_a_damaged_file_is_named(home: Path, content: bytes) -> None:
    home.parent.mkdir()
    home.write_bytes(content)
    with pytest.raises(Failure, match=rf"{home} is damaged: .* Remove it, or mend it."):
        Contexts.load()


def test_a_file_that_cannot_be_read(home: Path) -> None:
    home.mkdir(parents=True)
    with pytest.raises(Failure, match=f"{home}: Is a directory"):
        Contexts.load()
    assert f"{home}: Is a directory" in shown()


def test_a_command_that_names_brokers_needs_no_contexts(home: Path) -> None:
    home.mkdir(parents=True)
    assert shown("--bootstrap", "a:1") == "a:1"
    assert not is_kept("a:1"), "and nothing is learned"


PROPERTIES = (
    "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.username=alice\nsasl.password=p\n"
)


def test_a_context_remembers_how_to_connect(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"bootstrap.servers=f:1\n{PROPERTIES}")
    run("use", "prod", "--command-config", str(file))
    assert Contexts.load().all == {"prod": Context("f:1", command_config=str(file))}
    assert shown() == "f:1"
    run("use", "prod", "--bootstrap", "g:1")
    assert Contexts.load().all == {"prod": Context("g:1", command_config=str(file))}
    assert listed()[0]["command_config"] == str(file)
    assert "alice" not in (tmp_path / "qbus" / "contexts.json").read_text()


def test_a_context_needs_brokers_from_somewhere(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(PROPERTIES)
    assert run("use", "prod", "--command-config", str(file)).stderr == (
        f"qbus: {file} has no bootstrap.servers: name the brokers with --bootstrap HOST:PORT\n"
    )
    run("use", "prod", "--command-config", str(file), "--bootstrap", "b:1")
    assert shown() == "b:1"


def completed(*words: str) -> list[str]:
    """What a shell offers behind these words."""
    completion = ShellComplete(qbus, {}, "qbus", "_QBUS_COMPLETE")
    return [item.value for item in completion.get_completions(list(words), "")]


def test_names_are_completed_by_the_cluster_of_the_context(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def asked(context: click.Context, _: object) -> list[str]:
        return [f"of-{context.params['target'].bootstrap}"]

    monkeypatch.setattr(completing, "_asked", asked)
    assert completed("topic", "describe") == ["of-127.0.0.1:9092"]
    run("use", "test", "--bootstrap", "t:1")
    run("use", "prod", "--bootstrap", "p:1")
    assert completed("topic", "describe") == ["of-p:1"]
    assert completed("topic", "describe", "--context", "test") == ["of-t:1"]
    assert completed("topic", "describe", "--bootstrap", "b:1") == ["of-b:1"]


def test_contexts_are_completed(home: Path) -> None:
    run("use", "prod", "--bootstrap", "p:1")
    run("use", "test", "--bootstrap", "t:1")
    assert completed("context", "use") == ["prod", "test"]
    home.write_bytes(b"{")
    assert completed("context", "use") == [], "an error would spoil the line"

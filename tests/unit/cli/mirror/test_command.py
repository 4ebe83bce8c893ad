"""`qbus mirror`: command lines that make sense, those that do not, and what is shown."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from qbus.cli.failures import Failure
from qbus.cli.mirror.config import to_toml
from qbus.cli.mirror.options import Idc, Selected
from qbus.cli.mirror.tables import carried_table, status_tables
from qbus.cli.root import qbus
from qbus.cli.targets import Target
from qbus.clients.mirror.config import links, parse
from qbus.clients.mirror.control import target_defaults

ROUTE = ("--source", "a=h:1", "--target", "b=h:2", "--topics", "orders")
GOOD = (
    'topics = ["orders"]\n[target]\nidc = "b"\nbootstrap = "h:2"\n'
    '[[source]]\nidc = "a"\nbootstrap = "h:1"\n'
)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(qbus, ["mirror", *arguments])


@pytest.mark.parametrize("command", ["run", "status", "groups"])
@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((), "one of them."),
        ((*ROUTE, "--config", "x.toml"), "one of them."),
        (("--config", "x.toml", "--link", "l", "--zookeeper", "z"), "one of them."),
        (("--source", "a=h:1", "--topics", "x"), "--source, --target and --topics go together."),
        (("--source", "a=h:1", "--target", "b=h:2"), "go together."),
        (("--link", "l"), "--link needs --zookeeper."),
        (("--source", "h:1"), "'h:1' is not of the form NAME=HOST:PORT,..."),
        (("--source", "=h:1"), "is not of the form"),
        (("--zookeeper", "h:x", "--link", "l"), "expected host:port"),
    ],
)
def test_an_invalid_command_line_is_a_usage_error(
    command: str, arguments: tuple[str, ...], why: str
) -> None:
    result = run(command, *arguments)
    assert result.exit_code == 2
    assert why in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--source", "a=h:x", *ROUTE[2:]), "source[1].bootstrap = 'h:x': expected host:port"),
        (
            ("--source", "a.b=h:1", *ROUTE[2:]),
            "source[1].idc = 'a.b': expected the name of a datacenter",
        ),
        (("--source", "b=h:1", *ROUTE[2:]), "source[1].idc = 'b': it is the target's"),
        ((*ROUTE, "--source", "a=h:3"), "source[2].idc = 'a': it is there twice"),
        ((*ROUTE, "--topics", "("), "topics = ['orders', '(']"),
        ((*ROUTE, "--metrics-listen", "h"), "--metrics-listen 'h': expected host:port"),
    ],
)
def test_values_that_cannot_be_are_refused_by_name(arguments: tuple[str, ...], why: str) -> None:
    result = run("run", *arguments)
    assert result.exit_code == 2
    assert why in " ".join(result.stderr.split())


@pytest.mark.parametrize("command", ["groups", "status"])
def test_each_side_is_asked_as_it_wants_to_be(
    command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = []

    async def reachable(target: Target) -> None:
        asked.append((target.bootstrap, target.protocol))
        if len(asked) == 2:
            raise Failure("that is enough")

    monkeypatch.setattr(f"qbus.cli.mirror.{command}.ensure_reachable", reachable)
    config = tmp_path / "mirror.toml"
    config.write_text(GOOD.replace("h:2", "zk://z:1/b") + 'security.protocol = "SSL"\n')
    result = run(command, "--config", str(config), "--once")
    assert "that is enough" in result.output
    assert asked == [("h:1", "SSL"), ("zk://z:1/b", "PLAINTEXT")]


def test_options_become_a_configuration() -> None:
    text = to_toml(
        Selected(
            sources=(Idc("a", "h:1"), Idc("c", "zk://z:1/x")),
            target=Idc("b", "h:2,h:3"),
            topics=("orders", r'logs\.".*'),
            exclude=("x",),
            relay=False,
            config_file=None,
            zookeeper=None,
            link=None,
        )
    )
    first, second = links(parse(text))
    assert (first.source, first.source_bootstrap, first.relay) == ("a", "h:1", False)
    assert (second.source, second.target_bootstrap) == ("c", "h:2,h:3")
    assert first.topics == ("orders", r'logs\.".*')
    assert first.exclude == ("__.*", "x")


def properties(path: Path, user: str) -> Path:
    path.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n"
        f"sasl.username={user}\nsasl.password=secret\n"
    )
    return path


def test_files_of_properties_say_how_to_connect_to_either_side(tmp_path: Path) -> None:
    there = properties(tmp_path / "there", "away")
    here = properties(tmp_path / "here", "home")
    stated = Selected(
        sources=(Idc("a", "h:1"),),
        target=Idc("b", "h:2"),
        topics=("orders",),
        exclude=(),
        relay=True,
        config_file=None,
        zookeeper=None,
        link=None,
        command_config=here,
        source_command_config=there,
    )
    text = to_toml(stated)
    assert b"secret" not in text
    (link,) = links(parse(text))
    assert link.source_security.security().sasl_username == "away"
    assert link.target_security.security().sasl_username == "home"


def test_a_file_for_the_target_holds_where_the_configuration_does_not_say(tmp_path: Path) -> None:
    file = properties(tmp_path / "here", "home")
    config = parse(GOOD.encode(), defaults=target_defaults(None, file))
    assert config.target.security.security().sasl_username == "home"
    own = GOOD.replace('bootstrap = "h:2"', 'bootstrap = "h:2"\nsecurity.sasl.username = "own"')
    config = parse(own.encode(), defaults=target_defaults("zk://z:1", file))
    assert config.target.security.security().sasl_username == "own"
    assert config.target.bootstrap == "h:2"


def test_a_good_file_is_shown_with_its_defaults(tmp_path: Path) -> None:
    path = tmp_path / "mirror.toml"
    path.write_text(GOOD)
    shown = run("config", "check", str(path))
    assert parse(shown.stdout.encode()) == parse(GOOD.encode())
    document = json.loads(run("config", "check", str(path), "--json").stdout)
    assert document["transfer"]["in_flight"] >= 1


def test_a_bad_file_is_refused_with_place_and_reason(tmp_path: Path) -> None:
    path = tmp_path / "mirror.toml"
    path.write_text(GOOD + "relay = 3\n")
    result = run("config", "check", str(path))
    assert result.exit_code == 1
    assert "mirror.toml: source[1].relay = 3: expected true or false" in result.stderr


def test_only_a_central_configuration_may_leave_out_where_the_target_is(tmp_path: Path) -> None:
    path = tmp_path / "mirror.toml"
    path.write_text(GOOD.replace('bootstrap = "h:2"\n', ""))
    assert run("config", "check", str(path)).exit_code == 1
    assert run("config", "check", "--central", str(path)).exit_code == 0


def test_a_configuration_in_zookeeper_needs_a_zookeeper() -> None:
    result = run("config", "get", "to-b")
    assert result.exit_code == 2
    assert "--zookeeper" in result.stderr


PARTITION = {
    "topic": "orders",
    "target_topic": "a.orders",
    "partition": 3,
    "state": "stopped",
    "source_end": 50,
    "target_end": -1,
    "lag_records": 50,
    "lag_bytes": 2048,
    "lag_seconds": None,
    "error": "the [red]source[/red] lost data",
}
LINK: dict[str, Any] = {
    "name": "a->b",
    "error": "c is away",
    "reproduces": True,
    "partitions": [PARTITION],
}
PROCESS: dict[str, Any] = {
    "process": "one",
    "configuration": {"version": 4, "reason": "it is refused"},
    "links": [
        {
            "name": "a->b",
            "error": None,
            "totals": {"partitions": 1, "records": 7, "bytes": 4096},
            "groups": {"offsets": 2, "error": "no coordinator"},
        }
    ],
}


def shown(renderable: Any) -> str:
    console = Console(width=300, markup=False)
    with console.capture() as capture:
        console.print(renderable)
    return " ".join(capture.get().split())


def test_partitions_processes_and_all_that_is_wrong_are_shown() -> None:
    text = shown(status_tables({"links": [LINK], "processes": [PROCESS]}))
    assert "a->b orders a.orders 3 stopped 50 2.0 KB -" in text
    assert "one a->b 1 7 4.1 KB 2 v4" in text
    for trouble in (
        "a->b: c is away",
        "is not Qbus",
        "orders-3: the [red]source[/red] lost data",
        "one: a->b: no coordinator",
        "one: the configuration: it is refused",
    ):
        assert trouble in text


def test_nothing_to_mirror_is_said() -> None:
    assert "Nothing is mirrored." in shown(status_tables({"links": [], "processes": []}))


def test_copied_offsets_and_skipped_groups_are_shown() -> None:
    at = {"topic": "a.orders", "partition": 1, "offset": 7}
    carried: list[dict[str, Any]] = [
        {"link": "a->b", "group": "g", "offsets": [at], "skipped": None},
        {"link": "a->b", "group": "busy", "offsets": [], "skipped": "it has members"},
        {"link": "a->b", "group": "there", "offsets": [], "skipped": None},
    ]
    text = shown(carried_table(carried))
    assert "a->b g a.orders 1 7 -" in text
    assert "a->b busy - - - it has members" in text
    assert shown(carried_table(carried[2:])) == "All offsets are up to date."

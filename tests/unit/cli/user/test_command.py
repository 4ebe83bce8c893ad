"""`qbus user`: users that log in with a password."""

import json
import stat
from pathlib import Path

import pytest

from tests.unit.cli.security_fakes import FakeSecurity, failure, put_in_place, run


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeSecurity:
    return put_in_place(monkeypatch)


def test_a_user_logs_in_with_every_mechanism_unless_some_are_named(cluster: FakeSecurity) -> None:
    said = run("user", "add", "alice", "--password", "p").stdout
    assert said == "User alice logs in with SCRAM-SHA-256 or SCRAM-SHA-512, or PLAIN.\n"
    assert cluster.users["alice"] == {"SCRAM-SHA-256": ("p", 8192), "SCRAM-SHA-512": ("p", 8192)}
    run("user", "add", "bob", "--password", "q", "--mechanism", "scram-sha-512",
        "--iterations", "4096")  # fmt: skip
    assert cluster.users["bob"] == {"SCRAM-SHA-512": ("q", 4096)}


def test_the_password_of_a_file_is_its_first_line(cluster: FakeSecurity, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("from a file \r\nrest\n")
    run("user", "add", "alice", "--password-file", str(file))
    assert cluster.users["alice"]["SCRAM-SHA-256"][0] == "from a file "
    run("user", "add", "alice", "--password-file", "-", stdin="from stdin\n")
    assert cluster.users["alice"]["SCRAM-SHA-256"][0] == "from stdin"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["a"], "Nobody can be asked for the password: name --password-file FILE, or - for"),
        (["a", "--password", "p", "--password-file", "f"], "Name either --password or"),
        (["a", "--password", ""], "The password is empty."),
        (["", "--password", "p"], "NAME is empty"),
        (["a", "--password", "p", "--iterations", "10"], "4096<=x<=16384"),
        (["a", "--password", "p", "--mechanism", "PLAIN"], "scram-sha-256"),
    ],
)
def test_what_is_not_understood(cluster: FakeSecurity, arguments: list[str], said: str) -> None:
    assert said in failure(["user", "add", *arguments], 2)
    assert not cluster.users


def test_a_password_file_that_is_missing(cluster: FakeSecurity) -> None:
    said = failure(["user", "add", "a", "--password-file", "/none"])
    assert said == "qbus: /none: No such file or directory"


def test_what_the_user_connects_with_is_saved(cluster: FakeSecurity, tmp_path: Path) -> None:
    admin, alice = tmp_path / "admin.properties", tmp_path / "alice.properties"
    admin.write_text(
        "bootstrap.servers=b:1\nsecurity.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n"
        "sasl.username=admin\nsasl.password=s3cret\nssl.ca.location=/ca.pem\n"
    )
    added = run("user", "add", "alice", "--password", "a\\b", "--command-config", str(admin),
                "--save", str(alice))  # fmt: skip
    assert added.stdout.endswith(f"{alice} connects as that user.\n")
    assert alice.read_text() == (
        "bootstrap.servers=b:1\nsecurity.protocol=SASL_SSL\nssl.ca.location=/ca.pem\n"
        "sasl.mechanism=SCRAM-SHA-256\nsasl.username=alice\nsasl.password=a\\\\b\n"
    )
    assert stat.S_IMODE(alice.stat().st_mode) == 0o600
    again = ["user", "add", "bob", "--password", "p", "--save", str(alice)]
    assert failure(again) == f"qbus: {alice} exists: name a new file, or remove that one"
    assert "bob" not in cluster.users


def test_users_are_listed(cluster: FakeSecurity) -> None:
    assert run("user", "list").stderr == "No users yet: add one with 'qbus user add NAME'.\n"
    run("user", "add", "alice", "--password", "p")
    assert "SCRAM-SHA-256" in run("user", "list").stdout
    (document,) = json.loads(run("user", "list", "alice", "--json").stdout)
    assert document["user"] == "alice"
    assert document["credentials"][0] == {"mechanism": "SCRAM-SHA-256", "iterations": 8192}
    assert "there is no user bob" in failure(["user", "list", "bob"])


def test_users_are_removed(cluster: FakeSecurity) -> None:
    run("user", "add", "alice", "--password", "p")
    run("user", "remove", "alice", "--mechanism", "SCRAM-SHA-256")
    assert list(cluster.users["alice"]) == ["SCRAM-SHA-512"]
    said = run("user", "remove", "alice").stdout
    assert said == "User alice does not log in with SCRAM-SHA-512 any more.\n"
    assert not cluster.users


def test_no_password_is_shown(cluster: FakeSecurity) -> None:
    shown = run("user", "add", "alice", "--password", "hunter2", "--json")
    listed = run("user", "list", "--json")
    assert "hunter2" not in shown.output + listed.output

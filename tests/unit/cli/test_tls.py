"""`qbus tls init`: certificates for trials, which replace nothing."""

import json
import stat
from pathlib import Path

from click.testing import CliRunner, Result

from qbus.cli.root import qbus


def init(*arguments: object) -> Result:
    return CliRunner().invoke(qbus, ["tls", "init", *map(str, arguments)])


def test_a_directory_of_certificates(tmp_path: Path) -> None:
    directory = tmp_path / "new" / "tls"
    document = json.loads(init(directory, "--client", "alice", "--client", "bob", "--json").stdout)
    assert sorted(path.name for path in directory.iterdir()) == [
        "alice.key", "alice.pem", "bob.key", "bob.pem", "ca.key", "ca.pem", "server.key",
        "server.pem",
    ]  # fmt: skip
    assert document["clients"] == {"alice": "User:CN=alice", "bob": "User:CN=bob"}
    assert {"localhost", "127.0.0.1", "::1"} <= set(document["hosts"])
    for key in directory.glob("*.key"):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_it_says_that_it_is_for_trials_and_what_to_write_where(tmp_path: Path) -> None:
    said = init(tmp_path / "tls", "--host", "bus.example").stdout
    assert said.startswith("For trials only: ")
    assert "reached as bus.example:" in said
    for key in ("ssl.certificate.location", "ssl.key.location", "ssl.ca.location"):
        assert f"{key}={tmp_path}" in said


def test_more_clients_are_made_by_the_same_authority(tmp_path: Path) -> None:
    init(tmp_path)
    before = (tmp_path / "ca.pem").read_bytes(), (tmp_path / "server.pem").read_bytes()
    result = init(tmp_path, "--client", "carol")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "carol.pem").exists()
    assert before == ((tmp_path / "ca.pem").read_bytes(), (tmp_path / "server.pem").read_bytes())


def test_nothing_is_replaced(tmp_path: Path) -> None:
    init(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    result = init(tmp_path)
    assert result.exit_code == 1
    assert result.stderr == (
        f"qbus: {tmp_path / 'client.pem'} exists and is not replaced: choose another directory or"
        " name\n"
    )
    assert before == {path: path.read_bytes() for path in tmp_path.iterdir()}


def test_names_that_are_files_of_something_else(tmp_path: Path) -> None:
    for name in ("ca", "server", "../x", "", ".x"):
        assert init(tmp_path, "--client", name).exit_code == 2
    assert not list(tmp_path.iterdir())

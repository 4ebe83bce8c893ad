"""Files of properties for `--command-config`: what is wrong with them is said in one line."""

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import pytest
from click.testing import CliRunner

from qbus.cli.command_config import read_command_config
from qbus.cli.failures import Failure
from qbus.cli.root import qbus


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "client.properties"


def failure(file: Path, text: str) -> str:
    file.write_text(text)
    with pytest.raises(Failure) as failed:
        read_command_config(file)
    assert "\n" not in failed.value.message
    assert "hunter2" not in failed.value.message
    return failed.value.message


def test_what_cluster_up_writes(file: Path) -> None:
    file.write_text(
        "bootstrap.servers=127.0.0.1:9092\nsecurity.protocol=SASL_SSL\n"
        "sasl.mechanism=SCRAM-SHA-256\nsasl.username=admin\nsasl.password=hunter2\n"
        "ssl.ca.location=/d/ca.pem\nclient.id=left to other clients\n"
    )
    found = read_command_config(file)
    assert found.bootstrap == "127.0.0.1:9092"
    assert found.security.protocol == "SASL_SSL"
    assert found.security.sasl_username == "admin"
    assert found.security.ssl_ca_location == "/d/ca.pem"
    assert "hunter2" not in repr(found)


def test_a_mistyped_key_is_named_with_the_one_that_is_meant(file: Path) -> None:
    said = failure(file, "security.protocol=SSL\nsasl.usrname=a\nsasl.password=hunter2\n")
    assert said == f"{file}: sasl.usrname: it is not known; did you mean sasl.username?"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("security.protocol=TLS\n", "security.protocol is one of"),
        ("security.protocol=SASL_SSL\n", "needs sasl.mechanism"),
        ("security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.username=a\n", "sasl.password"),
        ("sasl.password hunter2\nhunter2\n", "line 2: expected name=value"),
        ("security.protocol=SSL\nssl.ca.location=ca.jks\n", "only PEM files"),
    ],
)
def test_what_makes_no_sense(file: Path, text: str, said: str) -> None:
    message = failure(file, text)
    assert message.startswith(str(file))
    assert said in message


@pytest.mark.parametrize("text", ["", "client.id=a\n", "this is no property\n"])
def test_a_file_about_something_else_is_refused(file: Path, text: str) -> None:
    assert "it says nothing about a connection" in failure(file, text)


LOGIN = "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.username=a\n"


@pytest.fixture
def public() -> Iterator[Path]:
    """A file in a directory that other accounts may enter."""
    with TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        yield Path(directory) / "client.properties"


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604])
def test_a_password_that_others_can_read_is_told_of(
    public: Path, mode: int, capsys: pytest.CaptureFixture[str]
) -> None:
    public.write_text(LOGIN + "sasl.password=hunter2\n")
    public.chmod(mode)
    assert read_command_config(public).security.sasl_username == "a"
    said = capsys.readouterr().err
    assert said.startswith(f"qbus: {public}: other accounts can read sasl.password in it")
    assert f"its mode is {mode:04o}" in said
    assert f"chmod 600 {public}" in said
    assert said.count("\n") == 1
    assert "hunter2" not in said


def test_so_are_other_secrets(public: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = "security.protocol=SSL\nssl.certificate.location=c.pem\nssl.key.location=k.pem\n"
    public.write_text(key + "ssl.key.password=hunter2\n")
    public.chmod(0o644)
    read_command_config(public)
    assert "ssl.key.password" in capsys.readouterr().err


def test_nothing_is_said_of_what_others_cannot_read_or_is_no_secret(
    public: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("A_PASSWORD", "hunter2")
    public.touch(0o600)
    public.write_text(LOGIN + "sasl.password=hunter2\n")
    read_command_config(public)
    public.chmod(0o644)
    public.write_text(LOGIN + "sasl.password=env:A_PASSWORD\n")
    read_command_config(public)
    public.write_text(LOGIN + "sasl.password=hunter2\n")
    public.parent.chmod(0o700)  # so that nobody gets at it
    read_command_config(public)
    assert capsys.readouterr().err == ""


def test_what_a_shell_pipes_is_read() -> None:
    reading, writing = os.pipe()
    os.write(writing, (LOGIN + "sasl.password=hunter2\n").encode())
    os.close(writing)
    try:
        found = read_command_config(Path(f"/dev/fd/{reading}"))
    finally:
        os.close(reading)
    assert found.security.sasl_username == "a"


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(Failure, match=f"{tmp_path}: Is a directory"):
        read_command_config(tmp_path)


def leaves(command: click.Command, *path: str) -> list[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        return [(" ".join(path), command)]
    context = click.Context(command)
    found = []
    for name in command.list_commands(context):
        sub = command.get_command(context, name)
        assert sub is not None
        found += leaves(sub, *path, name)
    return found


@pytest.mark.parametrize(("name", "command"), leaves(qbus), ids=lambda value: str(value)[:40])
def test_every_command_takes_one(name: str, command: click.Command) -> None:
    options = [one for one in command.params if "--command-config" in one.opts]
    assert len(options) == 1, name


def test_commands_that_connect_to_nothing_do_not_read_it() -> None:
    result = CliRunner().invoke(qbus, ["version", "--json", "--command-config", "/none"])
    assert result.exit_code == 0, result.output


def test_every_command_that_talks_to_a_cluster_explains_it() -> None:
    for name, command in leaves(qbus):
        has_bootstrap = any("--bootstrap" in one.opts for one in command.params)
        (option,) = (one for one in command.params if "--command-config" in one.opts)
        assert isinstance(option, click.Option)
        assert not has_bootstrap or not option.hidden, name

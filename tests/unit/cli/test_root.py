"""The command as a whole: what it lists, and what it does not import."""

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from qbus import __version__
from qbus.cli.root import COMMANDS, qbus


def imported_by(code: str) -> set[str]:
    script = f"import sys\n{code}\nprint('\\n'.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_help_lists_every_command() -> None:
    result = CliRunner().invoke(qbus, ["--help"])
    assert result.exit_code == 0
    for name, entry in COMMANDS.items():
        assert f"  {name} " in result.stdout
        assert entry.summary in result.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str) -> None:
    result = CliRunner().invoke(qbus, [name, "--help"])
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("Usage: qbus " + name)


def test_help_imports_neither_tables_nor_clients_nor_the_broker() -> None:
    modules = imported_by("import qbus.cli")
    assert not modules & {"rich", "asyncio", "qbus.clients", "qbus.broker", "json"}


def test_starting_a_broker_imports_neither_tables_nor_clients() -> None:
    modules = imported_by("import qbus.cli.broker.command, qbus.broker.server")
    assert not modules & {"rich", "qbus.clients", "prometheus_client"}


def test_version_for_people_and_machines() -> None:
    assert CliRunner().invoke(qbus, ["--version"]).stdout == f"qbus {__version__}\n"
    assert CliRunner().invoke(qbus, ["version"]).stdout.startswith(f"qbus {__version__} (")
    document = json.loads(CliRunner().invoke(qbus, ["version", "--json"]).stdout)
    assert document["qbus"] == __version__


@pytest.mark.parametrize(
    ("shell", "start"),
    [("bash", "_qbus_completion() {"), ("zsh", "#compdef qbus"), ("fish", "function _qbus")],
)
def test_completion_scripts(shell: str, start: str) -> None:
    result = CliRunner().invoke(qbus, ["completion", shell])
    assert result.exit_code == 0
    assert result.stdout.startswith(start)


def test_completion_completes_commands() -> None:
    environment = {"_QBUS_COMPLETE": "bash_complete", "COMP_WORDS": "qbus to", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-c", "from qbus.cli import main; main()"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "plain,topic\n"

"""How commands fail: one line, an exit code, no traceback."""

import click
import pytest
from click.testing import CliRunner, Result

from qbus.cli.failures import Failure, describe, describe_code, reported
from qbus.cli.root import qbus
from qbus.clients.errors import AuthenticationFailed, TlsFailed
from qbus.errors import ApiError, ConfigError, ErrorCode


def run(*arguments: str) -> Result:
    return CliRunner().invoke(qbus, arguments)


def fail_with(error: BaseException) -> None:
    with reported():
        raise error


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("nosuch",), "qbus: No such command 'nosuch'. Try 'qbus --help'.\n"),
        (
            ("tpoic", "list"),
            "qbus: No such command 'tpoic'. Did you mean 'topic'? Try 'qbus --help'.\n",
        ),
        (
            ("topic", "lst"),
            "qbus: No such command 'lst'. Did you mean 'list'? Try 'qbus topic --help'.\n",
        ),
        (("--nosuch",), "qbus: No such option '--nosuch'. Try 'qbus --help'.\n"),
        (
            ("version", "extra"),
            "qbus: Got unexpected extra argument (extra). Try 'qbus version --help'.\n",
        ),
        (
            ("produce", "t", "--key"),
            "qbus: Option '--key' requires an argument. Try 'qbus produce --help'.\n",
        ),
        (
            ("agent", "config", "get", "--zookeeper"),
            "qbus: Option '--zookeeper' requires an argument."
            " Try 'qbus agent config get --help'.\n",
        ),
        (
            ("consume", "t", "--group", ""),
            "qbus: Invalid value for '--group': is empty: name a group, or leave the option out."
            " Try 'qbus consume --help'.\n",
        ),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(arguments: tuple[str, ...], line: str) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", line)


def test_an_answer_of_the_broker_shows_its_words_and_its_code() -> None:
    error = ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, "topic 'a' exists")
    assert describe(error) == "topic 'a' exists (TOPIC_ALREADY_EXISTS)"


def test_without_words_the_code_is_spelled_out() -> None:
    error = ApiError(ErrorCode.TOPIC_ALREADY_EXISTS)
    assert describe(error) == "topic already exists (TOPIC_ALREADY_EXISTS)"
    error = ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, "topic a: TOPIC_ALREADY_EXISTS")
    assert describe(error) == "topic a: topic already exists (TOPIC_ALREADY_EXISTS)"


def test_a_refusal_says_what_would_allow_it() -> None:
    error = ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "topic t: TOPIC_AUTHORIZATION_FAILED")
    assert describe(error) == (
        "topic t: topic authorization failed (TOPIC_AUTHORIZATION_FAILED); no rule allows it:"
        " 'qbus acl add' makes one"
    )


def test_a_connection_that_is_not_safe_says_which_option_is_to_be_looked_at() -> None:
    error = TlsFailed("127.0.0.1:9092: its certificate is not trusted")
    assert describe(error).endswith("; --command-config FILE says how to connect")


def test_a_wrong_password_says_where_it_was_taken_from() -> None:
    error = AuthenticationFailed("127.0.0.1:9092: authentication failed", "PLAIN")
    assert "check the user's name and password where --command-config" in describe(error)


def test_a_code_of_a_later_protocol() -> None:
    assert describe_code(9999, None) == "error 9999"
    assert describe_code(9999, "too new") == "too new"


def test_a_missing_file_is_named() -> None:
    error = FileNotFoundError(2, "No such file or directory", "/absent")
    assert describe(error) == "/absent: No such file or directory"


def test_a_bad_configuration_speaks_for_itself() -> None:
    assert describe(ConfigError("unknown key: nosuch")) == "unknown key: nosuch"


def test_the_first_of_several_errors_is_reported() -> None:
    error = ExceptionGroup("several", [ConfigError("first"), ConfigError("second")])
    assert describe(error) == "first"


def test_a_defect_is_one_line_too() -> None:
    with pytest.raises(Failure) as failure:
        fail_with(ZeroDivisionError("division by zero"))
    assert failure.value.exit_code == 1
    assert "ZeroDivisionError: division by zero" in failure.value.message


def test_a_defect_shows_its_traceback_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QBUS_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        fail_with(ZeroDivisionError())


@pytest.mark.parametrize("interruption", [KeyboardInterrupt(), click.Abort()])
def test_an_interruption_is_quiet(
    interruption: BaseException, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(click.exceptions.Exit) as stopped:
        fail_with(interruption)
    assert stopped.value.exit_code == 130
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("command", ["produce", "consume"])
def test_what_cannot_be_a_topic_is_refused_with_the_rule_for_names(command: str) -> None:
    result = run(command, "bad topic", "--bootstrap", "127.0.0.1:1")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        "qbus: the topic name 'bad topic' has other characters than ASCII letters, digits, '.',"
        " '_' and '-' (INVALID_TOPIC_EXCEPTION)\n"
    )

"""How commands fail: one line on stderr and an exit code.

`QBUS_DEBUG=1` shows the traceback as well.
"""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

from qbus.errors import ApiError, ErrorCode, QbusError

FINDINGS = 3
"""A check ended, and found what it looks for."""

NOTHING_CHECKED = 4
"""A check ended without anything to check."""

INTERRUPTED = 130  # 128 + SIGINT, as a shell reports it
CLOSED_PIPE = 141  # 128 + SIGPIPE
TERMINATED = 143  # 128 + SIGTERM


_REFUSALS = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)


class Failure(click.ClickException):
    """An error that is shown in one line; exit code 1."""

    def show(self, file: object = None) -> None:  # noqa: ARG002 - click's signature
        click.echo(f"qbus: {self.format_message()}", err=True)


class Misuse(Failure):
    """An invalid command line; exit code 2."""

    exit_code = 2


@contextmanager
def reported() -> Iterator[None]:
    """Turn every exception into one line; Ctrl-C and a closed pipe print nothing."""
    try:
        yield
    except (click.exceptions.Exit, click.exceptions.NoArgsIsHelpError):
        raise
    except click.UsageError as error:
        raise Misuse(_usage_line(error)) from error
    except click.ClickException:
        raise
    except (KeyboardInterrupt, click.Abort):
        raise click.exceptions.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        _discard_stdout()
        raise click.exceptions.Exit(CLOSED_PIPE) from None
    except Exception as error:
        if os.environ.get("QBUS_DEBUG"):
            raise
        raise Failure(describe(error)) from error


def describe(error: BaseException) -> str:
    """One line that says what happened and, where that is known, what to do."""
    if isinstance(error, BaseExceptionGroup):
        return describe(error.exceptions[0])
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, ApiError):
        return describe_code(error.code, str(error)) + _remedy(error)
    if isinstance(error, QbusError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return _describe_system(error)
    return f"{type(error).__name__}: {error} (QBUS_DEBUG=1 shows where)"


def _describe_system(error: OSError) -> str:
    of = f"{error.filename}: " if error.filename else ""
    if error.errno not in {errno.EMFILE, errno.ENFILE}:
        return f"{of}{error.strerror}"
    from qbus.service.descriptors import HOW_TO_RAISE, shortages

    return f"{of}{shortages.describe(error)}; {HOW_TO_RAISE}"


def _remedy(error: ApiError) -> str:
    """What to do about an error that only other settings, or another rule, can end."""
    if error.code in _REFUSALS:
        return "; no rule allows it: 'qbus acl add' makes one"
    if error.code == ErrorCode.SASL_AUTHENTICATION_FAILED:
        return "; check the user's name and password where --command-config or the context has them"
    from qbus.clients.errors import NotSafe

    if isinstance(error, NotSafe) or "speaks TLS" in str(error) or "wants SASL" in str(error):
        return "; --command-config FILE says how to connect"
    return ""


def describe_code(code: int, message: str | None) -> str:
    """A broker's error: its message, or the code in words, with the name of the code."""
    try:
        name = ErrorCode(code).name
    except ValueError:
        return message or f"error {code}"
    words = (message or name).replace(name, name.lower().replace("_", " "))
    return f"{words} ({name})"


def _usage_line(error: click.UsageError) -> str:
    message = " ".join(error.format_message().split())
    if not message.endswith((".", "?")):
        message += "."
    command = error.ctx.command_path if error.ctx else "qbus"
    return f"{message} Try '{command} --help'."


def _discard_stdout() -> None:
    """Keep the interpreter's last flush of stdout from failing again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

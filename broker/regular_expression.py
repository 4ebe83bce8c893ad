"""Regular expressions in RE2's syntax, within bounds.

A member of a group subscribes to the topics whose whole name matches an expression (KIP-848); a
tool asks for the transactional ids that match one (KIP-1152). Any client may send any expression,
so both steps are bounded:

- **Compiling** holds the interpreter, and RE2 takes time in proportion to the square of what
  counted repetitions become. :class:`RegularExpression` bounds the length of the expression, the
  sum of its counts, its Unicode classes, and RE2's memory, hence the size of the program. What
  passes compiles within milliseconds.
- **Matching** takes time in proportion to the size of the program times the length of the text,
  whatever the expression, and releases the interpreter: :func:`find_matching` has a thread match
  many texts while the event loop runs.
"""

import asyncio
import logging
import re
import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import re2

from qbus.errors import ApiError, ErrorCode

_log = logging.getLogger(__name__)

MAX_LENGTH: Final = 4096  # characters
MAX_REPETITIONS: Final = 500  # the sum of the counts of an expression
MAX_UNICODE_CLASSES: Final = 16
_COMPILING_BYTES: Final = 48 * 1024
_MATCHING_BYTES: Final = 1024 * 1024

_COUNTED: Final = re.compile(r"\{(\d+)(?:,(\d*))?\}", re.ASCII)
_UNICODE_CLASS: Final = re.compile(r"\\[pP]")

_SLOW_S: Final = 1.0
_THREAD: Final = ThreadPoolExecutor(1, thread_name_prefix="regular-expressions")
"""One thread: hostile expressions occupy one core at most, and wait for each other."""


class InvalidRegularExpression(ApiError):  # noqa: N818 - what it is
    """An expression that is malformed or too large (INVALID_REGULAR_EXPRESSION)."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_REGULAR_EXPRESSION, message)


class RegularExpression:
    """A compiled expression, which texts match as a whole.

    Raises:
        InvalidRegularExpression: the expression is malformed or too large.
    """

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        _check_size(pattern)
        _compile(pattern, _COMPILING_BYTES)  # refuses a program that would take long to make
        self._compiled = _compile(pattern, _MATCHING_BYTES)

    def matches(self, text: str) -> bool:
        """Whether the expression matches the whole text."""
        return self._compiled.fullmatch(text) is not None

    @property
    def size(self) -> int:
        """The number of instructions of the program."""
        size: int = self._compiled.programsize
        return size


async def find_matching(pattern: str, texts: Collection[str]) -> frozenset[str]:
    """Return the texts that match an expression as a whole; the event loop goes on meanwhile.

    Raises:
        InvalidRegularExpression: the expression is malformed or too large.
    """
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_THREAD, _find_matching, pattern, texts)


def _find_matching(pattern: str, texts: Collection[str]) -> frozenset[str]:
    began = time.monotonic()
    compiled = RegularExpression(pattern)
    found = frozenset(filter(compiled.matches, texts))
    if (took := time.monotonic() - began) > _SLOW_S:
        _log.warning(
            "matching %d names with the regular expression %.200r took %.1f s,"
            " others waited: its program has %d instructions",
            *(len(texts), pattern, took, compiled.size),
        )
    return found


def _check_size(pattern: str) -> None:
    """Refuse what would take long to parse."""
    if len(pattern) > MAX_LENGTH:
        raise InvalidRegularExpression(
            f"the regular expression has {len(pattern)} characters, more than {MAX_LENGTH}"
        )
    counted = sum(max(map(_count, found)) for found in _COUNTED.findall(pattern))
    if counted > MAX_REPETITIONS:
        raise InvalidRegularExpression(
            f"the counts of repetitions add up to more than {MAX_REPETITIONS}"
        )
    if len(_UNICODE_CLASS.findall(pattern)) > MAX_UNICODE_CLASSES:
        raise InvalidRegularExpression(
            f"the regular expression has more than {MAX_UNICODE_CLASSES} Unicode classes"
        )


def _count(digits: str) -> int:
    """Read a count; what has more digits than any valid one is more than is allowed."""
    digits = digits.lstrip("0")
    return MAX_REPETITIONS + 1 if len(digits) > len(str(MAX_REPETITIONS)) else int(digits or 0)


def _compile(pattern: str, max_bytes: int) -> Any:
    options = re2.Options()
    options.max_mem = max_bytes
    options.never_capture = True
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        raise InvalidRegularExpression(_explain(error)) from error
    except UnicodeEncodeError as error:
        raise InvalidRegularExpression("the regular expression is not valid Unicode") from error
    finally:
        re2.purge()  # it keeps 128 expressions, each with up to max_mem bytes


def _explain(error: re2.error) -> str:
    reason = error.args[0] if error.args else b""
    text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
    if "too large" in text or "too big" in text:
        return "the regular expression is too large: it repeats too much"
    return f"invalid regular expression: {text}"

"""The options of a query as Spark passes them: texts by names that ignore case.

An invalid option is an error before anything is read or written. The error has the option's name,
its value and a remedy.
"""

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final

from qbus.errors import ConfigError

_MILLISECONDS = {
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}
_DURATION = re.compile(r"\s*(\d+)\s*([a-z]*)\s*", re.IGNORECASE)
_BOOLEANS = {"true": True, "false": False}

REFUSED: Final[Mapping[str, str]] = {
    "path": "there is no path: name topics with subscribe, or with topic to write",
    "kafka.key.deserializer": "keys are bytes: cast the column, or decode it with a function",
    "kafka.value.deserializer": "values are bytes: cast the column, or decode it with a function",
    "kafka.key.serializer": "keys are bytes or strings: cast the column before it is written",
    "kafka.value.serializer": "values are bytes or strings: cast the column before it is written",
    "kafka.auto.offset.reset": "choose where to start with startingOffsets",
    "kafka.enable.auto.commit": "offsets are kept in the query's checkpoint",
    "kafka.interceptor.classes": "interceptors are not supported",
    "kafka.group.instance.id": "the source does not join a group",
    "kafka.enable.idempotence": "writing is always idempotent",
    "kafka.transactional.id": "writing is exactly once; qbus.transactions=true uses transactions",
    "fetchoffset.numretries": "requests are retried until kafka.request.timeout.ms has passed",
    "fetchoffset.retryintervalms": "pauses between retries grow automatically",
}
"""Options of Kafka that have no meaning here, with the remedy for each."""

SECURITY: Final = ("kafka.security.", "kafka.ssl.", "kafka.sasl.")
"""How the names of options about security begin; :meth:`.ClusterOptions.of` checks them."""


class OptionError(ConfigError):
    """An option is missing, unknown or malformed; ``option`` names it."""

    def __init__(self, option: str, value: object, remedy: str) -> None:
        super().__init__(f"option {option}: {_shown(value)}{remedy}")
        self.option = option


class Options:
    """The options that were given. Every method raises :class:`OptionError`."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name.lower(): str(value) for name, value in given.items()}

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._given

    def among(self, names: Iterable[str]) -> list[str]:
        """Those of ``names`` that were given."""
        return [name for name in names if name in self]

    def below(self, prefixes: tuple[str, ...]) -> dict[str, str]:
        """The options whose names begin so."""
        return {name: value for name, value in self._given.items() if name.startswith(prefixes)}

    def text(self, name: str, default: str | None = None) -> str | None:
        """The value as given, or the default."""
        return self._given.get(name.lower(), default)

    def required(self, name: str, remedy: str) -> str:
        """The value of an option that is mandatory and must not be empty."""
        value = self.text(name)
        if value is None or not value.strip():
            raise OptionError(name, value, remedy)
        return value.strip()

    def integer(self, name: str, default: int, *, minimum: int = 0) -> int:
        """A whole number."""
        found = self.maybe_integer(name, minimum=minimum)
        return default if found is None else found

    def maybe_integer(self, name: str, *, minimum: int = 0) -> int | None:
        """A whole number, or None if the option was not given."""
        value = self.text(name)
        if value is None:
            return None
        try:
            number = int(value)
        except ValueError:
            raise OptionError(name, value, "give a whole number") from None
        if number < minimum:
            raise OptionError(name, value, f"give a whole number of at least {minimum}")
        return number

    def boolean(self, name: str, default: bool) -> bool:
        """True or false."""
        value = self.text(name)
        if value is None:
            return default
        try:
            return _BOOLEANS[value.strip().lower()]
        except KeyError:
            raise OptionError(name, value, "give true or false") from None

    def choice(self, name: str, default: str, allowed: Iterable[str]) -> str:
        """One of the words in ``allowed``, whose case is kept."""
        words = {word.lower(): word for word in allowed}
        value = self.text(name, default) or ""
        try:
            return words[value.strip().lower()]
        except KeyError:
            raise OptionError(name, value, f"give one of {', '.join(words.values())}") from None

    def milliseconds(self, name: str, default: int) -> int:
        """A time such as ``250``, ``250ms``, ``30s``, ``15m``, ``1h`` or ``1d``."""
        value = self.text(name)
        if value is None:
            return default
        match = _DURATION.fullmatch(value)
        unit = _MILLISECONDS.get((match[2] or "ms").lower()) if match else None
        if match is None or unit is None:
            raise OptionError(name, value, "give a time such as 500ms, 30s, 15m or 1h")
        return int(match[1]) * unit

    def check(self, known: Iterable[str]) -> None:
        """Raise for an option that is not in ``known``, which may be misspelt."""
        names = {name.lower(): name for name in known}
        for name, value in self._given.items():
            if name in names or name.startswith(("__", *SECURITY)):  # Spark's own, for one
                continue
            if name in REFUSED:
                raise OptionError(name, value, REFUSED[name])
            close = get_close_matches(name, names, n=1)
            meant = f"; did you mean {names[close[0]]}?" if close else ""
            raise OptionError(name, value, f"there is no such option{meant}")


def _shown(value: object) -> str:
    return "" if value is None else f"{value!r}: "

"""The definition of a configuration key."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from qbus.config.types import LIMITS, ConfigType
from qbus.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class ConfigKey:
    """The meaning of a key, and the values it takes.

    ``name`` is Kafka's. ``default``: None for a key that is not set by default. ``unit``: that of a
    number, ``""`` for a count. ``choices``: the allowed values, or items of a list. ``refused``:
    the reasons why values that Kafka knows are not supported. ``static``: a change needs a restart.
    ``check`` raises ValueError with what is expected instead.
    """

    name: str
    type: ConfigType
    default: Any
    doc: str
    unit: str = ""
    at_least: float | None = None
    at_most: float | None = None
    choices: tuple[str, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    static: bool = False
    check: Callable[[Any], None] | None = None

    def __repr__(self) -> str:
        return f"<{self.name}: {self.allowed}>"

    @property
    def sensitive(self) -> bool:
        """Whether the value is secret."""
        return self.type is ConfigType.PASSWORD

    @property
    def allowed(self) -> str:
        """The allowed values, in words."""
        if self.choices:
            return "one of " + ", ".join(self.choices) if len(self.choices) > 1 else self.choices[0]
        if self.type is ConfigType.BOOLEAN and self.refused:
            return " or ".join(sorted({"true", "false"} - self.refused.keys(), reverse=True))
        noun = f"{self.type.noun} of {self.unit}" if self.unit else self.type.noun
        if self.at_least is not None and self.at_most is not None:
            return f"{noun} from {self.at_least} to {self.at_most}"
        if self.at_least is not None:
            return f"{noun}, at least {self.at_least}"
        if self.at_most is not None:
            return f"{noun}, at most {self.at_most}"
        return noun

    def parse(self, raw: object) -> Any:
        """Return the value of ``raw``, which is text or a TOML value.

        Raises:
            ConfigError: the value is not allowed; the message names the key and the allowed values.
        """
        try:
            value = self.type.parse(raw)
        except (ValueError, OverflowError):
            raise self._refusal(raw, f"expected {self.allowed}") from None
        for item in value if self.type is ConfigType.LIST else (value,):
            self._check_item(raw, item)
        if self.check is not None:
            try:
                self.check(value)
            except ValueError as error:
                raise self._refusal(raw, f"expected {error}") from None
        return value

    def format(self, value: Any) -> str | None:
        """Return the value as text; None if it is not set."""
        return None if value is None else self.type.format(value)

    def _check_item(self, raw: object, item: Any) -> None:
        text = item if isinstance(item, str) else self.type.format(item)
        if text in self.refused:
            raise self._refusal(raw, self.refused[text])
        if (self.choices and text not in self.choices) or not self._in_range(item):
            raise self._refusal(raw, f"expected {self.allowed}")

    def _in_range(self, value: Any) -> bool:
        if self.type not in LIMITS:
            return True
        low, high = LIMITS[self.type]
        return (
            low <= value <= high
            and (self.at_least is None or value >= self.at_least)
            and (self.at_most is None or value <= self.at_most)
        )

    def _refusal(self, raw: object, why: str) -> ConfigError:
        return ConfigError(f"{self.name}={_abbreviated(raw, self)}: {why}")


def _abbreviated(raw: object, key: ConfigKey) -> str:
    if key.sensitive:
        return "(hidden)"
    if key.type is ConfigType.LIST and isinstance(raw, list | tuple):
        raw = ",".join(map(str, raw))
    text = raw if isinstance(raw, str) else repr(raw)
    return text if len(text) <= 200 else text[:200] + "..."

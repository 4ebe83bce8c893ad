"""What an operator states: a TOML file, ``-o key=value`` options, and the command's own options."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from qbus.config.broker import BrokerConfig
from qbus.errors import ConfigError


def load_broker_config(
    file: Path | None = None,
    options: Iterable[str] = (),
    flags: Mapping[str, object] | None = None,
) -> BrokerConfig:
    """The configuration of a broker that is about to start.

    ``options`` (``key=value``) go before ``file``; ``flags`` (by Kafka's name, None where not
    given) go before both.

    Raises:
        ConfigError: the file cannot be read or is no TOML, or anything stated is not allowed.
    """
    stated: dict[str, object] = {} if file is None else read_file(file)
    stated.update(split_option(option) for option in options)
    stated.update({name: value for name, value in (flags or {}).items() if value is not None})
    return BrokerConfig(stated)


def read_file(path: Path) -> dict[str, object]:
    """The keys and values of a TOML file, where tables stand for the dots in names.

    A key that is the beginning of another's, as ``max.connections``, is written in quotes.

    Raises:
        ConfigError: the file cannot be read or is no TOML.
    """
    import tomllib  # noqa: PLC0415 - most brokers start without a file, and then without this

    try:
        with path.open("rb") as file:
            tables = tomllib.load(file)
        return dict(_flatten(tables))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error


def split_option(option: str) -> tuple[str, str]:
    """Key and value of ``key=value``.

    Raises:
        ConfigError: there is no ``=``, or nothing before it.
    """
    name, separator, value = option.partition("=")
    if not separator or not name.strip():
        raise ConfigError(f"{option!r}: expected key=value")
    return name.strip(), value


def _flatten(tables: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, value in tables.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value

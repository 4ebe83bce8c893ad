"""From a configuration to TOML, with every field that has a value."""

from typing import Any

from qbus.errors import ConfigError
from qbus.service.toml.field import settings_of


def to_toml(config: Any) -> str:
    """The file that is read as ``config``.

    Raises :class:`~qbus.errors.ConfigError` where the package that writes TOML is missing.
    """
    try:
        import tomli_w  # noqa: PLC0415 - a daemon that runs writes none
    except ImportError:
        raise ConfigError("this needs tomli-w: pip install tomli-w") from None

    return tomli_w.dumps(to_document(config))


def to_document(config: Any) -> dict[str, Any]:
    """A table's fields, in the types of TOML; what has no value is left out."""
    document = {}
    for name, setting in settings_of(type(config)).items():
        value = getattr(config, setting.attribute)
        if value is not None and not (value == "" and setting.default == ""):
            document[name] = setting.rule.write(value)
    return document

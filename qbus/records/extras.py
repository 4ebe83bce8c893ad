"""Packages that Qbus can do without."""

from typing import Any

from qbus.errors import QbusError


class MissingExtra(QbusError, ImportError):  # noqa: N818 - what it is
    """A package is needed that an extra of Qbus installs; the message says which."""


def import_pyarrow() -> Any:
    """pyarrow; raises :class:`MissingExtra` where it is not installed."""
    try:
        import pyarrow as pa  # noqa: PLC0415 - takes a fifth of a second, and few need it
    except ImportError as error:
        message = "Arrow needs pyarrow: pip install qbus[arrow]"
        raise MissingExtra(message, name="pyarrow") from error
    return pa

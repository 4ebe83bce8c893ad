"""Whether fields hold numbers, where only these make sense."""

from collections.abc import Iterable

from pyspark.sql import DataFrame
from pyspark.sql.types import NumericType

from qbus.errors import ConfigError


def check_numbers(lines: DataFrame, place: str, fields: Iterable[str]) -> None:
    """Raise :class:`~qbus.errors.ConfigError` for a field of another type.

    place: what names the fields in the configuration.
    """
    for field in fields:
        (found,) = lines.select(field).schema.fields
        if not isinstance(found.dataType, NumericType):
            raise ConfigError(
                f"{place} = {field!r}: expected a field of numbers, its type is"
                f" {found.dataType.simpleString()}"
            )

"""JSON as nodes hold it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from qbus.metadata.errors import MalformedNode

dump = json.JSONEncoder(separators=(",", ":")).encode


@contextmanager
def decoding(what: str, data: bytes) -> Iterator[Any]:
    """The JSON in ``data``, for a block in which whatever is missing or of a wrong type tells."""
    try:
        yield json.loads(str(data, "utf-8"))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MalformedNode(f"no {what}: {data[:200]!r}") from error

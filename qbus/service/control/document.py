"""Documents in which daemons tell of themselves."""

import json
from collections.abc import Iterable
from typing import Any

TIME = "updated_ms"
"""The field that tells when a document was made, in milliseconds since the Unix epoch."""

_LONGEST_ERROR = 500


def encode(document: dict[str, Any]) -> bytes:
    """JSON in ASCII: what is told of may be no text at all, as the names of some files."""
    return json.dumps(document, separators=(",", ":")).encode()


def fitting(documents: Iterable[dict[str, Any]], max_bytes: int) -> Iterable[dict[str, Any]]:
    """As many of ``documents`` as take ``max_bytes`` of a list in JSON."""
    left = max_bytes
    for document in documents:
        left -= len(encode(document)) + 1
        if left < 0:
            return
        yield document


def short(error: str | None) -> str | None:
    """An error's words, or the beginning of very many."""
    if error is None or len(error) <= _LONGEST_ERROR:
        return error
    return error[:_LONGEST_ERROR] + "..."

"""Documents in which daemons tell of themselves."""

import json
from typing import Any

TIME = "updated_ms"
"""The field that tells when a document was made, in milliseconds since the Unix epoch."""


def encode(document: dict[str, Any]) -> bytes:
    """JSON in ASCII: what is told of may be no text at all, as the names of some files."""
    return json.dumps(document, separators=(",", ":")).encode()

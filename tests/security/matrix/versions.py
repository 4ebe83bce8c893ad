"""A row in all versions of its request."""

from collections.abc import Iterator
from dataclasses import replace

from qbus.errors import WireError
from qbus.wire import API, ApiKey, decode, decode_request_header

from .answers import Ids, build, request_frame
from .row import Row


def in_all_versions(row: Row, ids: Ids) -> Iterator[Row]:
    """The row in every version that can say all of what it asks, and what is wrong with it."""
    api = API[ApiKey[row.api]]
    for version in range(api.min_version, api.max_version + 1):
        asked = replace(row, version=version)
        if (row.api, version) not in _OTHERS and _says_it_all(asked, ids):
            yield asked


#: Answers that have no place for the error, and are empty; versions that have ids of topics and do
#: not accept them; and requests that are invalid, whoever asks, without more than the row states.
_OTHERS = {
    ("DESCRIBE_LOG_DIRS", 1),
    ("DESCRIBE_LOG_DIRS", 2),
    ("METADATA", 10),
    ("METADATA", 11),
    ("SYNC_GROUP", 5),
}


def _says_it_all(row: Row, ids: Ids) -> bool:
    """Whether the version has all that the request states, names or ids above all."""
    api = API[ApiKey[row.api]]
    try:
        data = memoryview(request_frame(row, ids))[4:]
    except WireError:
        return False
    _, position = decode_request_header(data)
    sent = decode(api.request, row.version, data, position)
    return bool(sent == build(api.request, row.request, ids))

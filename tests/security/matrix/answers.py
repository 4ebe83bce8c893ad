"""Requests of the table as bytes, and answers as the table writes them."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from qbus.errors import ErrorCode
from qbus.wire import API, ApiKey, Struct, decode_response
from qbus.wire.declare import fields
from tests.support.logs import batch
from tests.support.raw_client import frame

from .principals import LOBBY, NAMES, VAULT
from .row import NOT_FILLED, Answer, IdOf, Row, names_in
from .rules import Operation
from .table import RECORDS, TRANSACTIONAL_RECORDS

_TRANSACTIONAL: Final = 0x10
_BATCHES: Final = {
    RECORDS: bytes(batch(b"record")),
    TRANSACTIONAL_RECORDS: bytes(
        batch(
            b"record",
            producer_id=123_456,
            producer_epoch=0,
            base_sequence=0,
            attributes=_TRANSACTIONAL,
        )
    ),
}
_LABELS: Final = (
    "name",
    "topic",
    "topic_name",
    "group_id",
    "key",
    "transactional_id",
    "resource_name",
    "user",
    "topic_id",
)
WATCHED: Final = {
    *(name for kind, names in NAMES.items() if kind.name != "CLUSTER" for name in names),
    *LOBBY.values(),
    *VAULT.values(),
}
"""Names that an answer shows to those who may describe them, unless the request had them."""

Ids = Mapping[str, bytes]


def build(kind: type[Struct], values: Mapping[str, Any], ids: Ids) -> Struct:
    """A message, or a part of one, from plain dictionaries."""
    kinds = {one.name: one for one in fields(kind)}

    def made(name: str, value: Any) -> Any:
        part = kinds[name].kind
        if isinstance(value, IdOf):
            return ids[value]
        if isinstance(part, type) and isinstance(value, list):
            return [build(part, one, ids) for one in value]
        if isinstance(part, type) and isinstance(value, Mapping):
            return build(part, value, ids)
        return _BATCHES.get(value, value) if isinstance(value, str) else value

    return kind(**{name: made(name, value) for name, value in values.items()})


def request_frame(row: Row, ids: Ids) -> bytes:
    """The bytes of a row's request."""
    key = ApiKey[row.api]
    return frame(key, row.version, build(API[key].request, row.request, ids))


def answer(row: Row, data: bytes | None, ids: Ids) -> Answer:
    """An answer's bytes in the words of the table; None: the connection was closed."""
    if data is None:
        return frozenset({"closed"})
    _, response = decode_response(ApiKey[row.api], row.version, data)
    names = {one: name for name, one in ids.items()}
    parts = set(_errors(response, "", names))
    shown = set(_texts(response)) & (WATCHED - names_in(row.request))
    return frozenset(parts | {f"shows {name}" for name in shown} | set(_operations(response, row)))


def _errors(part: Struct, place: str, ids: Mapping[bytes, str]) -> Iterator[str]:
    for name in type(part).__slots__:
        value = getattr(part, name)
        if name.endswith("error_code") and value:
            where = place if name == "error_code" else f"{place}.{name}".lstrip(".")
            yield f"{where or 'whole'} {ErrorCode(value).name}"
        for label, one in _parts(value, ids):
            yield from _errors(one, f"{place}.{name}{label}".lstrip("."), ids)


def _operations(response: Struct, row: Row) -> Iterator[str]:
    for place in row.operations:
        found = _find(response, place.split("."))
        if found is not None and found != NOT_FILLED:
            named = (one.name for one in Operation if found >> one & 1)
            yield f"{place} may {','.join(sorted(named)) or 'nothing'}"


def _find(part: Struct, way: list[str]) -> int | None:
    name, _, label = way[0].partition("[")
    value = getattr(part, name)
    if len(way) == 1:
        return int(value)
    inner = [one for text, one in _parts(value, {}) if text == f"[{label}"]
    return _find(inner[0], way[1:]) if inner else None


def _parts(value: object, ids: Mapping[bytes, str]) -> Iterator[tuple[str, Struct]]:
    if isinstance(value, Struct):
        yield "", value
    elif isinstance(value, list):
        for one in value:
            if isinstance(one, Struct):
                yield _label(one, ids), one


def _label(part: Struct, ids: Mapping[bytes, str]) -> str:
    for name in _LABELS:
        value = getattr(part, name, None)
        if isinstance(value, bytes):
            value = ids.get(value)
        if value:
            return f"[{value}]"
    return ""


def _texts(value: object) -> Iterable[str]:
    """All names in all texts of an answer."""
    if isinstance(value, str):
        yield from names_in(value)
    elif isinstance(value, Struct):
        for name in type(value).__slots__:
            yield from _texts(getattr(value, name))
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)

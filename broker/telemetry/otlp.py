"""Reads OpenTelemetry's MetricsData, version 1, in protobuf's wire format. Pure.

The messages and the numbers of their fields are those of opentelemetry-proto
(``metrics/v1/metrics.proto``, ``common/v1/common.proto``). Read are gauges, sums and histograms (of
these count and sum), which is what Kafka's clients send; fields that are not known are skipped, as
protobuf demands. What is read comes from clients: every length is checked, and the number of values
is bounded, and so is the number of fields that are looked at for them.
"""

from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final, NamedTuple

Field = tuple[int, int | memoryview]
"""The number of a field and its value; what has a length is a view of the message."""

MOST_FIELDS: Final = 65_536
"""Twice what 500 values with ten attributes each have."""

PIECE: Final = 256
"""So many fields are looked at in some tenths of a millisecond."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAX_VARINT_BYTES: Final = 10
_MAX_NAME: Final = 200
_U64: Final = 2**64
_I64_MAX: Final = 2**63 - 1
_DOUBLE: Final = Struct("<d")
_SIGNED: Final = Struct("<q")

# The numbers of fields, by message.
_DATA_RESOURCES: Final = 1
_RESOURCE_SCOPES: Final = 2
_SCOPE_METRICS: Final = 2
_METRIC_NAME, _METRIC_GAUGE, _METRIC_SUM, _METRIC_HISTOGRAM = 1, 5, 7, 9
_POINTS: Final = 1
_NUMBER_DOUBLE, _NUMBER_INT, _NUMBER_ATTRIBUTES = 4, 6, 7
_HISTOGRAM_COUNT, _HISTOGRAM_SUM, _HISTOGRAM_ATTRIBUTES = 4, 5, 9
_KEY, _VALUE = 1, 2
_TEXT, _BOOLEAN, _INTEGER, _REAL = 1, 2, 3, 4


class Malformed(ValueError):  # noqa: N818 - what it is
    """Bytes that are no MetricsData."""


class Point(NamedTuple):
    """One value of a metric, and the attributes that tell it from others of the metric."""

    name: str
    attributes: tuple[tuple[str, str], ...]
    value: float


class _Work:
    """How many fields may still be looked at. After each so many of them, ``pause`` is called."""

    __slots__ = ("_left", "_most", "_pause")

    def __init__(self, most: int, pause: Callable[[], None]) -> None:
        self._left = self._most = most
        self._pause = pause

    def spend(self) -> None:
        """Look at one more. Raises Malformed: there are too many."""
        self._left -= 1
        if self._left < 0:
            raise Malformed(f"it has more than {self._most} fields")
        if not self._left % PIECE:
            self._pause()


def read_points(
    data: memoryview,
    most: int,
    *,
    most_fields: int = MOST_FIELDS,
    pause: Callable[[], None] = lambda: None,
) -> list[Point]:
    """Return the values in ``data``, at most ``most``; the rest is left out.

    ``pause`` is called after each :data:`PIECE` fields, so that a thread may let others work.

    Raises:
        Malformed: it is no MetricsData, or one with more than ``most_fields`` fields before that.
    """
    points: list[Point] = []
    work = _Work(most_fields, pause)
    for resource in _messages(data, _DATA_RESOURCES, work):
        for scope in _messages(resource, _RESOURCE_SCOPES, work):
            for metric in _messages(scope, _SCOPE_METRICS, work):
                for point in _points_of(metric, work):
                    if len(points) >= most:
                        return points
                    points.append(point)
    return points


def _points_of(metric: memoryview, work: _Work) -> Iterator[Point]:
    name = ""
    kinds: list[tuple[int, memoryview]] = []
    for number, value in _fields(metric, work):
        if number == _METRIC_NAME:
            name = _text(value)
        elif number in {_METRIC_GAUGE, _METRIC_SUM, _METRIC_HISTOGRAM}:
            kinds.append((number, _view(value)))
    for number, kind in kinds:
        for point in _messages(kind, _POINTS, work):
            if number == _METRIC_HISTOGRAM:
                yield from _histogram(name, point, work)
            else:
                yield from _number(name, point, work)


def _number(name: str, point: memoryview, work: _Work) -> Iterator[Point]:
    attributes: list[tuple[str, str]] = []
    found: float | None = None
    for number, value in _fields(point, work):
        if number == _NUMBER_ATTRIBUTES:
            attributes.append(_attribute(_view(value), work))
        elif number == _NUMBER_DOUBLE:
            found = _double(value)
        elif number == _NUMBER_INT:
            found = float(_signed(value))
    if found is not None:
        yield Point(name, tuple(sorted(attributes)), found)


def _histogram(name: str, point: memoryview, work: _Work) -> Iterator[Point]:
    attributes: list[tuple[str, str]] = []
    values: dict[str, float] = {}
    for number, value in _fields(point, work):
        if number == _HISTOGRAM_ATTRIBUTES:
            attributes.append(_attribute(_view(value), work))
        elif number == _HISTOGRAM_COUNT:
            values["count"] = float(_signed(value))
        elif number == _HISTOGRAM_SUM:
            values["sum"] = _double(value)
    for part, found in values.items():
        yield Point(f"{name}.{part}", tuple(sorted(attributes)), found)


def _attribute(pair: memoryview, work: _Work) -> tuple[str, str]:
    key, text = "", ""
    for number, value in _fields(pair, work):
        if number == _KEY:
            key = _text(value)
        elif number == _VALUE:
            text = _any_value(_view(value), work)
    return key, text


def _any_value(message: memoryview, work: _Work) -> str:
    """Return a value as text; lists and bytes are left out."""
    for number, value in _fields(message, work):
        if number == _TEXT:
            return _text(value)
        if number == _BOOLEAN:
            return "true" if value else "false"
        if number == _INTEGER and isinstance(value, int):
            return str(value - _U64 if value > _I64_MAX else value)
        if number == _REAL:
            return f"{_double(value):g}"
    return ""


# The wire format.


def _messages(data: memoryview, wanted: int, work: _Work) -> Iterator[memoryview]:
    """Yield the messages in the field ``wanted``."""
    for number, value in _fields(data, work):
        if number == wanted:
            yield _view(value)


def _fields(data: memoryview, work: _Work) -> Iterator[Field]:
    position = 0
    while position < len(data):
        work.spend()
        tag, position = _varint(data, position)
        number, kind = tag >> 3, tag & 7
        if not number:
            raise Malformed("a field has the number 0")
        if kind == _VARINT:
            value, position = _varint(data, position)
            yield number, value
            continue
        if kind == _BYTES:
            size, position = _varint(data, position)
        elif kind == _FIXED64:
            size = 8
        elif kind == _FIXED32:
            size = 4
        else:
            raise Malformed(f"a field is of the unknown wire type {kind}")
        end = position + size
        if end > len(data):
            raise Malformed("a field ends behind its message")
        yield number, data[position:end]
        position = end


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for index in range(_MAX_VARINT_BYTES):
        if position + index >= len(data):
            raise Malformed("a number ends behind its message")
        byte = data[position + index]
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value % _U64, position + index + 1
    raise Malformed(f"a number takes more than {_MAX_VARINT_BYTES} bytes")


def _view(value: int | memoryview) -> memoryview:
    if isinstance(value, int):
        raise Malformed("a number stands in place of a message")
    return value


def _text(value: int | memoryview) -> str:
    return bytes(_view(value)[:_MAX_NAME]).decode("utf-8", "replace")


def _double(value: int | memoryview) -> float:
    number: float = _DOUBLE.unpack(_eight(value))[0]
    return number


def _signed(value: int | memoryview) -> int:
    number: int = _SIGNED.unpack(_eight(value))[0]
    return number


def _eight(value: int | memoryview) -> memoryview:
    view = _view(value)
    if len(view) != _DOUBLE.size:
        raise Malformed(f"a number of 8 bytes has {len(view)}")
    return view

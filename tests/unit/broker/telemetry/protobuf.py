"""Writes what OpenTelemetry's clients write, as simply as possible."""

import struct


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def message(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def text(number: int, value: str) -> bytes:
    return message(number, value.encode())


def double(number: int, value: float) -> bytes:
    return varint(number << 3 | 1) + struct.pack("<d", value)


def fixed(number: int, value: int) -> bytes:
    return varint(number << 3 | 1) + struct.pack("<q", value)


def attribute(number: int, key: str, value: bytes) -> bytes:
    return message(number, text(1, key) + message(2, value))


def gauge(name: str, *points: bytes) -> bytes:
    return text(1, name) + message(5, b"".join(message(1, point) for point in points))


def total(name: str, *points: bytes) -> bytes:
    kind = b"".join(message(1, point) for point in points)
    return text(1, name) + message(7, kind + varint(2 << 3) + varint(2) + varint(3 << 3) + b"\1")


def histogram(name: str, *points: bytes) -> bytes:
    return text(1, name) + message(9, b"".join(message(1, point) for point in points))


def data(*metrics: bytes) -> bytes:
    scope = text(1, "scope") + b"".join(message(2, metric) for metric in metrics)
    return message(1, attribute(1, "service", text(1, "s")) + message(2, scope))

"""Every message and version against kio, a codec that shares nothing with ours."""

import io
from collections.abc import Iterator
from typing import Any

import kio.index
import kio.serial
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qbus.wire import API, Struct, decode, encode

from .strategies import kafkas_messages

# kio narrows some types: times must be representable, error codes known, uuids of version 4.
TAME = {
    "int8": st.integers(0, 3),
    "int16": st.integers(0, 100),
    "int32": st.integers(0, 10_000),
    "int64": st.integers(0, 2_000_000_000),
    "uuid": st.uuids(version=4).map(lambda value: value.bytes),
    "string": st.text("abcdefghij", min_size=1, max_size=10),
}


def both_messages() -> Iterator[Any]:
    for api in API.values():
        for kind, cls in (("request", api.request), ("response", api.response)):
            for version in range(api.min_version, api.max_version + 1):
                load = getattr(kio.index, f"load_{kind}_schema")
                try:
                    entity = load(api.key, version)
                except kio.index.KioIndexError:
                    continue
                yield pytest.param(cls, version, entity, id=f"{cls.__name__}-v{version}")


ALL = list(both_messages())


def test_kio_knows_nearly_everything() -> None:
    assert len(ALL) > 270


@pytest.mark.parametrize(("cls", "version", "entity"), ALL)
def test_kio_reads_what_we_write_and_writes_what_we_read(
    cls: type[Struct], version: int, entity: Any
) -> None:
    read, write = kio.serial.entity_reader(entity), kio.serial.entity_writer(entity)

    @settings(max_examples=8, suppress_health_check=list(HealthCheck))
    @given(kafkas_messages(cls, version, **TAME))
    def compare(message: Struct) -> None:
        ours = b"".join(bytes(part) for part in encode(message, version))
        theirs, size = read(ours, 0)
        assert size == len(ours)
        buffer = io.BytesIO()
        write(buffer, theirs)
        assert buffer.getvalue() == ours
        assert decode(cls, version, ours) == message

    compare()

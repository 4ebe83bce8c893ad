"""Every message of every version comes back as it went out."""

import pytest
from hypothesis import given, settings

from qbus.wire import API, Struct, decode, encode

from .strategies import messages

ALL = [
    pytest.param(cls, version, id=f"{cls.__name__}-v{version}")
    for api in API.values()
    for cls in (api.request, api.response)
    for version in range(api.min_version, api.max_version + 1)
]


@pytest.mark.parametrize(("cls", "version"), ALL)
def test_what_is_written_is_read(cls: type[Struct], version: int) -> None:
    @settings(max_examples=8)
    @given(messages(cls, version))
    def check(message: Struct) -> None:
        data = b"".join(bytes(part) for part in encode(message, version))
        assert decode(cls, version, memoryview(data)) == message

    check()


@pytest.mark.parametrize(("cls", "version"), ALL)
def test_a_message_of_defaults_is_written_and_read(cls: type[Struct], version: int) -> None:
    data = b"".join(encode(cls(), version))
    assert decode(cls, version, memoryview(data)) == cls()

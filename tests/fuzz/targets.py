"""The targets of the fuzzer: ``python -m tests.fuzz.targets NAME [libFuzzer options]``.

Each target takes any bytes and may end in no error but the ones it names.
"""

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from struct import unpack_from
from typing import Any

import atheris

with atheris.instrument_imports(include=["qbus"]):
    from qbus.broker.authentication.tokens import TokenRules, TokenVerifier, read_key_set
    from qbus.broker.disque import options as job_options
    from qbus.broker.disque.authentication import MAX_COMMAND
    from qbus.broker.disque.errors import CommandError
    from qbus.broker.disque.resp import MAX_LINE, CommandParser, ProtocolError
    from qbus.broker.net.frames import RequestFrames
    from qbus.errors import AuthenticationError, WireError
    from qbus.jobs import parse_id, queue_of, read_options, topic_of
    from qbus.records import (
        HEADER_SIZE,
        BatchHeader,
        CorruptBatch,
        codec,
        crc32c,
        iter_batches,
        iter_records,
        plain,
        pure,
    )
    from qbus.security.sasl import parse_bearer, parse_plain
    from qbus.security.scram import ScramClient, ScramCredential, ScramMechanism, ScramServer
    from qbus.service.http import BadRequestError, basic_credentials, parse_request
    from qbus.wire import API, decode, decode_request_header, encode
    from tests.fuzz.stored import intake, recovery
    from tests.support.lean_requests import general_form, lean_forms

_CRC = slice(17, 21)
_MAX_FRAME = 1 << 16
_MAX_DECOMPRESSED = 1 << 20


def request(data: bytes) -> None:
    """A request frame: its header, then its body; what was read can be written again."""
    with suppress(WireError):
        header, position = decode_request_header(data)
        api = API.get(header.api_key)  # type: ignore[call-overload] # any int may be asked for
        if api is None or not api.min_version <= header.api_version <= api.max_version:
            return
        message = decode(api.request, header.api_version, data, position)
        again = b"".join(bytes(part) for part in encode(message, header.api_version))
        assert decode(api.request, header.api_version, again) == message


def lean_request(data: bytes) -> None:
    """A request frame that the lean way takes: the general one reads the same in it."""
    for name, form in lean_forms(data).items():
        assert form == general_form(name, data)


def response(data: bytes) -> None:
    """A response of any API and version."""
    if len(data) < 2:
        return
    api = list(API.values())[data[0] % len(API)]
    version = api.min_version + data[1] % (api.max_version - api.min_version + 1)
    with suppress(WireError):
        decode(api.response, version, data[2:])


def records(data: bytes) -> None:
    """Record batches in which any field may be wrong."""
    with suppress(CorruptBatch):
        for _, batch in iter_batches(data):
            for _ in iter_records(batch, max_size=_MAX_DECOMPRESSED):
                pass


def plain_batch(data: bytes) -> None:
    """A batch whose sum is made right: both twins find it plain, or neither does."""
    made = bytearray(data)
    if len(made) >= HEADER_SIZE:
        made[_CRC] = crc32c(data[_CRC.stop :]).to_bytes(4)
    assert plain.plain_header(made) == plain.portable_plain_header(made)


def codecs(data: bytes) -> None:
    """Wrong batches, to both codecs: they read the same records, or raise the same error."""
    if len(data) < HEADER_SIZE:
        return
    header = BatchHeader(*unpack_from(">qiibIhiqqqhii", data))
    payload = data[HEADER_SIZE:]
    outcomes: list[object] = []
    for twin in (codec.twin, pure):
        buffers = twin.ColumnsBuffers()
        try:
            decoder = twin.Decoder(payload, header, "t", 0, 1)
            outcomes.append((decoder.take(len(payload) + 1), None))
            buffers.extend(payload, header, 1)
        except CorruptBatch as error:
            outcomes.append((str(error), buffers.rows))
    assert outcomes[0] == outcomes[1]


def frames(data: bytes) -> None:
    """A stream cut anywhere; memory stays within what was sent and the limit."""
    reader = RequestFrames(memoryview(bytearray(64)), _MAX_FRAME)
    position = 0
    with suppress(WireError):
        while position < len(data):
            target = reader.target()
            assert len(target)
            taken = data[position : position + len(target)]
            target[: len(taken)] = taken
            position += len(taken)
            reader.received(len(taken))
            for _ in iter(reader.next, None):
                pass
            reader.keep(reader.wanted())
            assert reader.held <= 4 * (position + _MAX_FRAME)


def _commands(pieces: list[bytes]) -> list[list[bytes] | str]:
    parser, found = CommandParser(_MAX_FRAME), list[list[bytes] | str]()
    try:
        for piece in pieces:
            parser.feed(piece)
            while (command := parser.next()) is not None:
                found.append(command)
            assert parser.held <= 64 * _MAX_FRAME
    except ProtocolError as error:
        found.append(str(error))
    return found


def resp(data: bytes) -> None:
    """Commands of a client of jobs: the same ones wherever the stream is cut."""
    cut = data[0] % 7 + 1 if data else 1
    whole = _commands([data])
    cuts = _commands([data[start : start + cut] for start in range(0, len(data), cut)])
    assert cuts == whole


def resp_login(data: bytes) -> None:
    """What somebody sends who has not said who he is: little of it is kept."""
    parser = CommandParser(MAX_COMMAND)
    with suppress(ProtocolError):
        for start in range(0, len(data), 97):
            parser.feed(data[start : start + 97])
            while (command := parser.next()) is not None:
                assert sum(map(len, command)) <= MAX_COMMAND + MAX_LINE
            assert parser.held <= 2 * (MAX_COMMAND + MAX_LINE)


def page(data: bytes) -> None:
    """The head of a request for metrics: it is refused, or has what a request has."""
    for head in (data, b"GET / HTTP/1.1\r\n" + data):
        with suppress(BadRequestError):
            request = parse_request(head)
            assert request.method.isupper()
            assert not any(character in request.target for character in "\r\n ")
            for name, value in request.headers.items():
                assert name == name.lower()
                assert "\n" not in value
            basic_credentials(request.headers.get("authorization", ""))
    basic_credentials(data.decode("latin-1"))


def jobs(data: bytes) -> None:
    """The words of a command, an id, and headers of a job."""
    words = data.split(b" ")
    for parse in (job_options.parse_qscan, job_options.parse_jscan, job_options.parse_get):
        with suppress(CommandError):
            parse(words)
    with suppress(CommandError):
        job_options.parse_pause([b"PAUSE", b"q", *words])
    with suppress(CommandError):
        added = job_options.parse_add([b"ADDJOB", b"q", b"b", *words], 3, "0" * 40)
        assert 0 <= added.delay < added.ttl
        assert added.retry >= 0
    parse_id(data)
    read_options([("qbus-job", data)], 300)
    with suppress(ValueError):
        assert queue_of(topic_of(data)) == data


_SCRAM = ScramMechanism.SHA_256
_CREDENTIAL = ScramCredential(b"salt", bytes(32), bytes(32), 4096)


def sasl(data: bytes) -> None:
    """Messages of each mechanism, of clients and of servers: nobody gets in by any of them."""
    with suppress(AuthenticationError):
        assert all(parse_plain(data))
    with suppress(AuthenticationError):
        assert parse_bearer(data).token
    first, _, last = data.partition(b"\n")
    server = ScramServer(_SCRAM, lambda _: _CREDENTIAL, "server")
    with suppress(AuthenticationError):
        server.step(first)
        server.step(last)
    assert not server.is_complete
    client = ScramClient(_SCRAM, "user", "password", "client")
    with suppress(AuthenticationError):
        client.answer(first)
        client.answer(last)
    assert not client.is_complete
    with suppress(ValueError):
        text = str(data, "latin-1")
        found = ScramCredential.decode(text)
        assert ScramCredential.decode(found.encode()) == found


class _NoKeys:
    """Knows the keys of a key set that signs nothing."""

    def find(self, kid: str | None) -> list[Any]:
        return [] if kid else read_key_set({"keys": []})


def tokens(data: bytes) -> None:
    """JSON Web Tokens, and key sets."""
    with suppress(AuthenticationError):
        TokenVerifier(TokenRules(), _NoKeys()).verify(str(data, "latin-1"))
        raise AssertionError("a token that nobody signed")
    with suppress(ValueError, RecursionError):
        read_key_set(json.loads(data))


TARGETS: dict[str, Callable[[bytes], None]] = {
    "request": request,
    "lean_request": lean_request,
    "response": response,
    "records": records,
    "plain_batch": plain_batch,
    "codecs": codecs,
    "frames": frames,
    "intake": intake,
    "recovery": recovery,
    "resp": resp,
    "resp_login": resp_login,
    "page": page,
    "jobs": jobs,
    "sasl": sasl,
    "tokens": tokens,
}

if __name__ == "__main__":
    atheris.Setup([sys.argv[0], *sys.argv[2:]], TARGETS[sys.argv[1]])
    atheris.Fuzz()

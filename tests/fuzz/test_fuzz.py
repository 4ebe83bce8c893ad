"""Coverage-guided fuzzing of everything that reads bytes from the network, for a short while."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from struct import pack
from typing import Any

import pytest

from qbus.records import build_batch
from qbus.wire import API, ApiKey, Struct, encode_request, lean
from qbus.wire.messages.end_txn import EndTxnRequest
from qbus.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from qbus.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from qbus.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.fuzz.stored import SEEDS

if importlib.util.find_spec("atheris") is None:
    pytest.skip("atheris is not installed", allow_module_level=True)

_RUNS = 15_000
_FEW_RUNS = {"recovery": 1_500}  # of what opens files
_MANY_RUNS = 1_000_000
_STORED = {"intake": _MANY_RUNS, "recovery": 30_000}
_BEFORE_AUTHENTICATION = ("request", "frames", "sasl", "tokens", "resp", "resp_login", "page")


def seeds() -> dict[str, list[bytes]]:
    """Something that each target accepts, to start from."""
    requests = [pack(">hhih", api.key, api.max_version, 1, -1) + bytes(40) for api in API.values()]
    batch = bytes(build_batch([(b"key", b"value", (("h", b"v"),), 1)]))
    return {
        "request": requests,
        "lean_request": list(lean_requests(batch)),
        "plain_batch": [batch, bytes(build_batch([(None, b"v", (), 1)] * 2))],
        "response": [bytes([index, 0]) + bytes(40) for index in range(len(API))],
        "records": [batch, batch + batch],
        "codecs": [batch],
        "resp": [b"*2\r\n$4\r\nQLEN\r\n$1\r\nq\r\nPING \"a\\x41\" 'b'\r\n*0\r\n*-1\r\n"],
        "resp_login": [
            b"*3\r\n$4\r\nAUTH\r\n$5\r\nalice\r\n$6\r\nsecret\r\n",
            b"*5\r\n$5\r\nHELLO\r\n$1\r\n3\r\n$4\r\nAUTH\r\n$1\r\nu\r\n$1\r\np\r\n",
            b"AUTH \"a\\x41\" 'b'\r\n*1048576\r\n$0\r\n\r\n",
        ],
        "page": [
            b"GET /metrics?name[]=a HTTP/1.1\r\nHost: h\r\nAccept: */*\r\n\r\n",
            b"Authorization: Basic YWxpY2U6c2VjcmV0\r\nAccept-Encoding: gzip\r\n\r\n",
        ],
        "jobs": [
            b"0 TTL 5 RETRY 1 DELAY 2 MAXLEN 3 REPLICATE 1 ASYNC",
            b"GETJOB NOHANG TIMEOUT 1 COUNT 2 WITHCOUNTERS FROM a b",
            b"JSCAN 0 COUNT 1 BUSYLOOP QUEUE q STATE active REPLY all",
            b"D-dcb833cf-8YL1NT17e9+wsA/09NqxscQI-05a1",
            b"86400,300,0,1,00000000",
            b"in out all none state bcast",
        ],
        "sasl": [
            b"\0user\0password",
            b"n,,\x01auth=Bearer a.b.c\x01\x01",
            b"n,a=user,n=user,r=abc\nc=biws,r=abcserver,p=AAAA",
            b"r=clientserver,s=c2FsdA==,i=4096\nv=AAAA",
            b"salt=AAAA,stored_key=AAAA,server_key=AAAA,iterations=4096",
        ],
        "tokens": [
            b"eyJhbGciOiJSUzI1NiIsImtpZCI6Im9uZSJ9.eyJzdWIiOiJhbGljZSJ9.AAAA",
            b'{"keys": [{"kty": "RSA", "kid": "one", "n": "AQAB", "e": "AQAB", "use": "sig"}]}',
            b'{"keys": [{"kty": {"RSA": 1}, "alg": ["RS256"]}]}',
        ],
        **SEEDS,
        "frames": [pack(">i", 5) + b"hello" + pack(">i", 300) + bytes(300)],
    }


def lean_requests(batch: bytes) -> Iterator[bytes]:
    """What the lean way is for, by a topic's name and by its id."""
    data = PartitionProduceData(index=1, records=batch)
    wanted = FetchPartition(partition=1, fetch_offset=2, partition_max_bytes=1 << 20)
    position = OffsetCommitRequestPartition(partition_index=1, committed_metadata="m")
    for version in (12, 13):
        name = "t" if version == 12 else ""
        produced = TopicProduceData(name=name, partition_data=[data])
        fetched = FetchTopic(topic=name, partitions=[wanted])
        committed = OffsetCommitRequestTopic(name=name, partitions=[position, position])
        sent: dict[str, Any] = {"acks": -1, "timeout_ms": 1, "topic_data": [produced]}
        yield _framed(ApiKey.PRODUCE, version, ProduceRequest(**sent))
        yield _framed(ApiKey.PRODUCE, version, ProduceRequest(transactional_id="x", **sent))
        yield _framed(
            ApiKey.FETCH, version, FetchRequest(max_wait_ms=1, min_bytes=1, topics=[fetched])
        )
        yield _framed(
            ApiKey.OFFSET_COMMIT,
            version - 3,
            OffsetCommitRequest(group_id="g", member_id="m", topics=[committed, committed]),
        )
    for version in (4, 5):
        ending = EndTxnRequest(transactional_id="x", producer_id=1, producer_epoch=0)
        yield _framed(ApiKey.END_TXN, version, ending)


def _framed(key: ApiKey, version: int, request: Struct) -> bytes:
    return b"".join(map(bytes, encode_request(key, version, 1, "c", request)))[4:]


@pytest.mark.parametrize("target", seeds())
def test_no_input_ends_in_an_unexpected_error(target: str, tmp_path: Path) -> None:
    if target == "lean_request" and not lean.IS_BUILT:
        pytest.skip("nothing was compiled here")
    fuzz(target, tmp_path, _FEW_RUNS.get(target, _RUNS), 170)


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("target", _BEFORE_AUTHENTICATION)
def test_nor_does_any_before_authentication(target: str, tmp_path: Path) -> None:
    fuzz(target, tmp_path, _MANY_RUNS, 1100)


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("target", "runs"), _STORED.items())
def test_nor_does_what_is_stored(target: str, runs: int, tmp_path: Path) -> None:
    fuzz(target, tmp_path, runs, 1100)


def fuzz(target: str, tmp_path: Path, runs: int, timeout_s: float) -> None:
    """Run a target from its seeds; fail with what it fails with."""
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for number, seed in enumerate(seeds()[target]):
        (corpus / str(number)).write_bytes(seed)
    # A process inherits the peak of the memory of the one that starts it: let that be a small one.
    forked = ["sh", "-c", '"$@"; exit $?', "sh"]
    command = [*forked, sys.executable, "-m", "tests.fuzz.targets", target, str(corpus)]
    options = [f"-runs={runs}", "-max_len=4096", "-rss_limit_mb=1024", "-timeout=20"]
    done = subprocess.run(
        [*command, *options, f"-artifact_prefix={tmp_path}/"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert f"Done {runs} runs" in done.stderr

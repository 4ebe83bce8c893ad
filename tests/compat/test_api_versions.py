"""The broker serves the APIs of Apache Kafka, each in the newest stable version."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest

from perf.peers import java, kafka
from qbus.wire import API
from tests.support.tools import skip_because_of

pytestmark = pytest.mark.compat

#: What brokers of Apache Kafka serve and those of Qbus do not: docs/protocol.md says why.
NOT_SERVED = {
    *("CreateDelegationToken", "RenewDelegationToken"),
    *("ExpireDelegationToken", "DescribeDelegationToken"),
    *("AddRaftVoter", "RemoveRaftVoter", "UnregisterBroker"),
    *("StreamsGroupHeartbeat", "StreamsGroupDescribe"),
    *("InitializeShareGroupState", "ReadShareGroupState", "WriteShareGroupState"),
    *("DeleteShareGroupState", "ReadShareGroupStateSummary"),
}
_COMMENT = re.compile(r"(?m)//[^\"\n]*$|^\s*//.*$")


@pytest.fixture(scope="module", autouse=True)
def _needs_java() -> None:
    skip_because_of(kafka.missing())


def kafkas() -> Iterator[tuple[str, int, int]]:
    """Yield name, key and newest stable version of each API that Kafka's brokers serve."""
    (jar,) = Path(java.classpath().removesuffix("/*")).glob("kafka-clients-*.jar")
    with ZipFile(jar) as archive:
        for name in archive.namelist():
            if not re.fullmatch(r"common/message/\w+Request\.json", name):
                continue
            message = json.loads(_COMMENT.sub("", archive.read(name).decode()))
            if message["validVersions"] != "none" and "broker" in message["listeners"]:
                newest = int(message["validVersions"].rpartition("-")[2])
                unstable = message.get("latestVersionUnstable", False)
                yield message["name"].removesuffix("Request"), message["apiKey"], newest - unstable


def test_all_apis_but_the_documented_ones() -> None:
    served = {key.value for key in API}
    assert {name for name, key, _ in kafkas() if key not in served} == NOT_SERVED


def test_each_in_kafkas_newest_version() -> None:
    served = {key.value: api.max_version for key, api in API.items()}
    older = {name: newest for name, key, newest in kafkas() if served.get(key, newest) < newest}
    assert older == {}

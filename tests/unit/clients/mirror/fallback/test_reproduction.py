"""A link whose target is no Qbus: its status, and when it starts again."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from qbus.clients.mirror.config import Groups, LinkConfig
from qbus.clients.mirror.fallback import Reproduction
from qbus.clients.mirror.fallback import reproduction as module
from qbus.clients.mirror.provenance import Provenance
from qbus.clients.mirror.routes import TopicRoute
from qbus.clients.mirror.status import link_document
from qbus.clients.net.cluster import Cluster
from qbus.clients.types import TopicPartition
from qbus.errors import ApiError, ErrorCode

CONFIG = LinkConfig("a", "b", "s:1", "t:1", ("t",))


def reproduction(config: LinkConfig = CONFIG) -> Reproduction:
    return Reproduction(config, *(Cluster(bootstrap, "test", 1.0) for bootstrap in ("s:1", "t:1")))


@pytest.mark.parametrize("wanted", [True, False])
def test_the_status_says_that_group_offsets_are_not_synced(wanted: bool) -> None:
    config = replace(CONFIG, groups=Groups(enabled=wanted))
    document = link_document(reproduction(config).status())
    assert document["reproduces"]
    assert ("not synced" in (document["groups"]["error"] or "")) == wanted


async def test_the_link_starts_again_if_a_topic_was_created_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: dict[str, TopicRoute] = {}
    wanted: list[list[str]] = []

    async def prepare(*_: object) -> dict[str, TopicRoute]:
        return dict(found)

    monkeypatch.setattr(module, "prepare", prepare)
    link = reproduction()
    link._clients = SimpleNamespace(consumer=SimpleNamespace(subscribe=wanted.append))  # type: ignore[assignment]
    for name in "t", "u":
        found[name] = TopicRoute(name, f"a.{name}", 1, Provenance("a", "id", ("a",)))
        await link._discover()
    assert wanted == [["t"], ["t", "u"]]
    found["t"] = TopicRoute("t", "a.t", 1, Provenance("a", "other", ("a",)))
    with pytest.raises(ApiError) as caught:
        await link._discover()
    assert caught.value.code is ErrorCode.INCONSISTENT_TOPIC_ID


class Refusing:
    """A delivery of which some records were refused."""

    def __init__(self, failures: dict[int, Exception]) -> None:
        self._refused = failures

    def _failures(self) -> dict[int, Exception]:
        return self._refused


TOO_LARGE = ApiError(ErrorCode.MESSAGE_TOO_LARGE, "too large")


def test_records_that_were_refused_beside_stored_ones_are_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    delivery: Any = Refusing({1: TOO_LARGE, 2: TOO_LARGE})
    module._report_refused("a-b", TopicPartition("t", 3), [40, 50, 60, 70], delivery)
    assert caplog.messages == [
        "link a-b: the target refused the record at offset 50 of t-3 and 1 more, and stored others"
        " of the same request: the refused ones are missing at the target (too large)"
    ]


@pytest.mark.parametrize(
    "failures",
    [
        {},
        {0: TOO_LARGE, 1: TOO_LARGE},
        {1: ApiError(ErrorCode.REQUEST_TIMED_OUT, "the next run sends it again")},
    ],
)
def test_what_the_next_run_copies_is_not(
    failures: dict[int, Exception], caplog: pytest.LogCaptureFixture
) -> None:
    delivery: Any = Refusing(failures)
    module._report_refused("a-b", TopicPartition("t", 3), [40, 50], delivery)
    assert caplog.messages == []

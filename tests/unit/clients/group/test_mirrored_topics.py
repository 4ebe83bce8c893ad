"""Topics that are wanted everywhere: by whose mirrors they are, as they come and go."""

from typing import Any

from qbus.clients import everywhere
from qbus.clients.group.topics import SubscribedTopics
from qbus.clients.net.trouble import TroubleLog
from qbus.errors import ErrorCode
from qbus.wire import ApiKey
from qbus.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)

from .test_topics import FakeCluster

SOURCE, FORMER = "qbus.mirror.source", "qbus.mirror.former.source"


class Configured(FakeCluster):
    """A cluster that also says what is set for its topics; None: it does not know such keys."""

    request_timeout = 1.0
    troubles = TroubleLog("test")

    def __init__(self, **configs: dict[str, str] | None) -> None:
        super().__init__()
        self.configs: dict[str, dict[str, str] | None] = {}
        self.described: list[str] = []
        self.hidden: set[str] = set()
        self.have(configs)

    def have(self, configs: dict[str, dict[str, str] | None]) -> None:
        self.configs |= configs
        self.topics |= {name: [None] for name in configs}

    async def ask_any(self, key: ApiKey, request: DescribeConfigsRequest) -> Any:
        assert key is ApiKey.DESCRIBE_CONFIGS
        self.described += [one.resource_name for one in request.resources]
        return DescribeConfigsResponse(
            results=[
                self._result(one.resource_name, one.configuration_keys or [])
                for one in request.resources
            ]
        )

    def _result(self, name: str, keys: list[str]) -> DescribeConfigsResult:
        result = DescribeConfigsResult(error_message=None, resource_type=2, resource_name=name)
        if name in self.hidden:
            result.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif name not in self.configs:
            result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif (config := self.configs[name]) is not None:
            result.configs = [
                DescribeConfigsResourceResult(
                    name=key, value=config.get(key, ""), documentation=None
                )
                for key in keys
            ]
        return result


def wanted(cluster: FakeCluster, *topics: str) -> SubscribedTopics:
    made: Any = cluster
    return SubscribedTopics(made, everywhere(*topics))


async def test_a_topic_and_its_mirrors_but_no_namesakes() -> None:
    cluster = Configured(
        orders={},
        clicks={},
        **{
            "a.orders": {SOURCE: "a"},
            "b.orders": {FORMER: "b"},
            "team.orders": {},
            "c.orders": {SOURCE: "d"},
            "a.clicks": {SOURCE: "a"},
        },
    )
    topics = wanted(cluster, "orders")
    await topics.refresh(["led"])
    assert topics.names == ("a.orders", "b.orders", "orders")
    assert topics.counts() == {"a.orders": 1, "b.orders": 1, "orders": 1}


async def test_new_topics_are_described_once_and_deleted_ones_forgotten() -> None:
    cluster = Configured(orders={}, **{"a.orders": {SOURCE: "a"}, "team.orders": {}})
    topics = wanted(cluster, "orders")
    await topics.refresh()
    cluster.have({"b.orders": {SOURCE: "b"}})
    del cluster.topics["a.orders"]
    await topics.refresh()
    await topics.refresh()
    assert topics.names == ("b.orders", "orders")
    assert cluster.described == ["a.orders", "team.orders", "b.orders"]


async def test_a_topic_deleted_during_the_request_is_described_again() -> None:
    cluster = Configured(orders={}, **{"a.orders": {SOURCE: "a"}})
    del cluster.configs["a.orders"]
    topics = wanted(cluster, "orders")
    await topics.refresh()
    found = [topics.names]
    cluster.have({"a.orders": {SOURCE: "a"}})
    await topics.refresh()
    assert [*found, topics.names] == [("orders",), ("a.orders", "orders")]


async def test_where_nothing_is_said_the_name_decides() -> None:
    cluster = Configured(orders=None, **{"a.orders": None, "clicks": None})
    topics = wanted(cluster, "orders")
    await topics.refresh()
    assert topics.names == ("a.orders", "orders")


async def test_where_nothing_may_be_described_the_name_decides() -> None:
    cluster = Configured(orders={}, **{"a.orders": {SOURCE: "a"}, "clicks": {}})
    cluster.hidden = {"a.orders"}
    topics = wanted(cluster, "orders")
    await topics.refresh()
    assert topics.names == ("a.orders", "orders")

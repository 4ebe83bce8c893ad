"""A long request is answered in pieces as it would be at once."""

import asyncio
from typing import Any, cast

import pytest

from qbus.broker.kafka.context import RequestContext
from qbus.broker.kafka.pieces import answer_in_pieces, cut_of, is_long
from qbus.broker.net.peer import Peer
from qbus.config import ListenerInfo
from qbus.errors import ApiError, ErrorCode, WireError
from qbus.wire import API, ApiKey, Struct
from qbus.wire.declare import fields
from qbus.wire.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from qbus.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from qbus.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseTopic,
)

HERE = ListenerInfo.plaintext("127.0.0.1", 9)


def context(key: ApiKey, version: int) -> RequestContext:
    return RequestContext(key, version, "test", Peer(1, "127.0.0.1", HERE))


class Offsets:
    """Answers ListOffsets by what was asked for, and notes how much at a time."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def __call__(self, _broker: Any, _context: Any, request: ListOffsetsRequest) -> Any:
        assert request.replica_id == -1
        self.sizes.append(sum(len(topic.partitions) for topic in request.topics))
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=one.partition_index, offset=one.timestamp
                        )
                        for one in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )


def listing(topics: dict[str, int]) -> ListOffsetsRequest:
    return ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(
                name=name,
                partitions=[
                    ListOffsetsPartition(partition_index=index, timestamp=7 * index)
                    for index in range(count)
                ],
            )
            for name, count in topics.items()
        ],
    )


async def answered(handler: Any, key: ApiKey, version: int, request: Struct) -> Any:
    return await answer_in_pieces(handler, cast("Any", None), context(key, version), request)


@pytest.mark.parametrize(
    "topics",
    [
        pytest.param({"a": 200}, id="one piece"),
        pytest.param({"a": 201}, id="one more"),
        pytest.param({"a": 1000, "b": 1, "c": 399}, id="topics across pieces"),
        pytest.param({f"t{number}": 3 for number in range(500)}, id="many topics"),
        pytest.param({"a": 0, "b": 500, "c": 0, "d": 0}, id="topics without partitions"),
    ],
)
async def test_partitions_of_topics(topics: dict[str, int]) -> None:
    offsets, request = Offsets(), listing(topics)
    response = await answered(offsets, ApiKey.LIST_OFFSETS, 5, request)
    assert max(offsets.sizes) <= 200
    assert response == Offsets()(None, None, request)
    assert request == listing(topics)


async def test_what_comes_again_and_again_is_handled_twice() -> None:
    offsets, request = Offsets(), listing({"a": 1})
    request.topics *= 50_000
    response = await answered(offsets, ApiKey.LIST_OFFSETS, 5, request)
    assert sum(offsets.sizes) == 2
    ((partition, other),) = [topic.partitions for topic in response.topics]
    assert partition.partition_index == other.partition_index == 0


async def test_a_request_that_is_refused_as_a_whole() -> None:
    def refuse(*_: object) -> Any:
        raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    with pytest.raises(ApiError):
        await answered(refuse, ApiKey.LIST_OFFSETS, 5, listing({"a": 1000}))


@pytest.mark.parametrize("failing", range(3))
async def test_an_error_about_a_whole_is_kept_whichever_piece_it_answers(failing: int) -> None:
    """A partition that is missing without an error would have no committed offset."""
    calls = iter(range(100))
    error = ErrorCode.NOT_COORDINATOR

    def one_group(_broker: Any, _context: Any, request: OffsetFetchRequest) -> Any:
        if next(calls) == failing:
            return OffsetFetchResponse(error_code=error)
        return OffsetFetchResponse(
            topics=[OffsetFetchResponseTopic(name=topic.name) for topic in request.topics or ()]
        )

    asked = OffsetFetchRequest(
        group_id="g",
        topics=[OffsetFetchRequestTopic(name="t", partition_indexes=list(range(600)))],
    )
    assert (await answered(one_group, ApiKey.OFFSET_FETCH, 7, asked)).error_code == error


@pytest.mark.parametrize("failing", range(3))
async def test_so_is_an_error_about_an_element_that_is_cut(failing: int) -> None:
    calls = iter(range(100))

    def groups(_broker: Any, _context: Any, request: OffsetFetchRequest) -> Any:
        has_failed = next(calls) == failing
        return OffsetFetchResponse(
            groups=[
                OffsetFetchResponseGroup(
                    group_id=group.group_id,
                    error_code=ErrorCode.NOT_COORDINATOR if has_failed else ErrorCode.NONE,
                )
                for group in request.groups
            ]
        )

    topic = OffsetFetchRequestTopics(name="t", partition_indexes=list(range(150)))
    asked = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(group_id="g", topics=[topic]),
            OffsetFetchRequestGroup(group_id="other"),
        ]
    )
    response = await answered(groups, ApiKey.OFFSET_FETCH, 8, asked)
    first, *others = response.groups
    assert (first.group_id, first.error_code) == ("g", ErrorCode.NOT_COORDINATOR)
    assert [one.group_id for one in others] == ["other"]


async def test_all_pieces_have_to_be_answered_until_the_same_time() -> None:
    deadlines: set[float] = set()
    offsets = Offsets()

    async def handle(broker: Any, context: RequestContext, request: ListOffsetsRequest) -> Any:
        deadlines.add(context.deadline(5.0))
        await asyncio.sleep(0.001)
        return offsets(broker, context, request)

    before = asyncio.get_running_loop().time()
    await answered(handle, ApiKey.LIST_OFFSETS, 5, listing({"a": 1000}))
    (deadline,) = deadlines
    assert deadline >= before + 5.0
    assert len(offsets.sizes) == 5


async def test_handlers_may_be_coroutines() -> None:
    async def describe(_broker: Any, _context: Any, request: DescribeGroupsRequest) -> Any:
        return DescribeGroupsResponse(
            groups=[DescribedGroup(group_id=name) for name in request.groups]
        )

    names = [f"group-{number}" for number in range(999)]
    request = DescribeGroupsRequest(groups=names)
    response = await answered(describe, ApiKey.DESCRIBE_GROUPS, 5, request)
    assert [one.group_id for one in response.groups] == names


async def test_more_than_may_be_asked_for_is_refused() -> None:
    request = API[ApiKey.DESCRIBE_CONFIGS].request(
        resources=[
            _made(ApiKey.DESCRIBE_CONFIGS, "resources", resource_name=f"t{number}")
            for number in range(10_001)
        ]
    )
    with pytest.raises(WireError, match="more than 10000"):
        await answered(None, ApiKey.DESCRIBE_CONFIGS, 4, request)


@pytest.mark.parametrize("key", list(API), ids=lambda key: key.name)
def test_the_arrays_of_every_cut_are_there(key: ApiKey) -> None:
    """Every level names arrays of the request and of the response."""
    api = API[key]
    for version in range(api.min_version, api.max_version + 1):
        cut = cut_of(key, version)
        for levels in cut.ways if cut is not None else ():
            asked, answer = _Kind(api.request, version), _Kind(api.response, version)
            for level in levels:
                asked = asked.inner(level.items)
                for name in level.names or ():
                    assert not name or name in asked.names()
                if level.answer:
                    answer = answer.inner(level.answer)
                    assert set(level.label) <= answer.names()


def test_short_requests_are_not_cut() -> None:
    cut = cut_of(ApiKey.LIST_OFFSETS, 5)
    assert cut is not None
    assert not is_long(cut, listing({"a": 100, "b": 100}))
    assert is_long(cut, listing({"a": 100, "b": 101}))


class _Kind:
    def __init__(self, cls: Any, version: int) -> None:
        self._cls = cls
        self._version = version

    def names(self) -> set[str]:
        return set(self._cls.__slots__) if hasattr(self._cls, "__slots__") else set()

    def inner(self, name: str) -> "_Kind":
        (field,) = [one for one in fields(self._cls) if one.name == name]
        assert field.is_array
        return _Kind(field.kind, self._version)


def _made(key: ApiKey, array: str, **values: Any) -> Any:
    (field,) = [one for one in fields(API[key].request) if one.name == array]
    return cast("Any", field.kind)(**values)

"""Long requests, answered some elements at a time.

Most APIs ask about many things, each for itself: topics, partitions, groups, rules. A request with
more of them than a piece has is cut into requests that its handler answers one after the other,
with a turn of the event loop between two, and whose answers are put together. So a handler needs
not know of long requests.

What comes more than once is handled at most twice, as handlers may refuse duplicates: in the answer
of a long request it comes at most twice. Elements of the same name become one.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from qbus.errors import ErrorCode, WireError
from qbus.wire import ApiKey, Struct

from ..partition.purgatory import Delayed
from ..turns import PIECE, Pace, next_turn
from .context import RequestContext

if TYPE_CHECKING:
    from ..broker import Broker

_TWICE: Final = 2
_GROUPED_AT_ONCE: Final = 10 * PIECE  # elements whose names are compared


class Level(NamedTuple):
    """An array of a request, and the array of the response that answers it, element by element.

    ``names``: the fields that name an element; none for numbers and strings, which are their own
    names. ``answer``: empty where the response lacks the level. ``label``: the fields by which an
    element of the response is known to belong to the one before it.
    """

    items: str
    names: tuple[str, ...] | None
    answer: str
    label: tuple[str, ...] = ()


class Cut(NamedTuple):
    """How the requests of an API are cut.

    ``ways``: levels from the outermost to the innermost; several where a request has lists beside
    each other. ``versions``: that have these arrays. ``size``: how many of the innermost elements
    make a piece. ``most``: how many a request may have.
    """

    ways: tuple[tuple[Level, ...], ...]
    versions: range = range(100)
    size: int = PIECE
    most: int = 100_000


def _flat(items: str, names: tuple[str, ...] | None, answer: str, **others: Any) -> Cut:
    return Cut(((Level(items, names, answer),),), **others)


def _by_topic(
    name: str, index: str | None, answer: str = "topics", label: str = "", **others: Any
) -> Cut:
    """Of topics and their partitions; ``index``: None where partitions are plain numbers."""
    inner = Level(
        "partitions" if index is not None else "partition_indexes",
        None if index is None else (index,),
        "partitions",
    )
    return Cut(((Level("topics", (name,), answer, (label or name,)), inner),), **others)


_OFFSET_TOPICS: Final = (
    Level("topics", ("topic_id", "name"), "topics", ("topic_id", "name")),
    Level("partition_indexes", None, "partitions"),
)
_CLASSIC_OFFSET_TOPICS: Final = (
    Level("topics", ("name",), "topics", ("name",)),
    Level("partition_indexes", None, "partitions"),
)
_UNNAMED: Final[tuple[str, ...]] = ("",)  # every element is handled, whatever else there is
_FEW: Final = 20
_GROUPS: Final = 10_000  # the store may be asked for each

_CONFIGS: Final = _flat(
    "resources", ("resource_type", "resource_name"), "responses", size=PIECE // 4
)

_CUTS: Final[dict[int, tuple[Cut, ...]]] = {
    ApiKey.LIST_OFFSETS: (_by_topic("name", "partition_index"),),
    ApiKey.METADATA: (_flat("topics", ("topic_id", "name"), "topics"),),
    ApiKey.OFFSET_FETCH: (
        Cut((_CLASSIC_OFFSET_TOPICS,), range(8)),
        Cut(
            (
                (
                    Level(
                        "groups", ("group_id", "member_id", "member_epoch"), "groups", ("group_id",)
                    ),
                    *_OFFSET_TOPICS,
                ),
            ),
            range(8, 100),
            PIECE // 4,
        ),
    ),
    ApiKey.FIND_COORDINATOR: (
        _flat("coordinator_keys", None, "coordinators", versions=range(4, 100)),
    ),
    ApiKey.LEAVE_GROUP: (
        _flat("members", ("member_id", "group_instance_id"), "members", versions=range(3, 100)),
    ),
    ApiKey.DESCRIBE_GROUPS: (_flat("groups", None, "groups", most=_GROUPS),),
    ApiKey.CREATE_TOPICS: (_flat("topics", ("name",), "topics"),),
    ApiKey.DELETE_TOPICS: (
        _flat("topic_names", None, "responses", versions=range(6)),
        _flat("topics", ("name", "topic_id"), "responses", versions=range(6, 100)),
    ),
    ApiKey.DELETE_RECORDS: (_by_topic("name", "partition_index"),),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (_by_topic("topic", "partition"),),
    ApiKey.ADD_PARTITIONS_TO_TXN: (
        _flat(
            "transactions",
            ("transactional_id", "producer_id", "producer_epoch"),
            "results_by_transaction",
            versions=range(4, 100),
        ),
    ),
    ApiKey.WRITE_TXN_MARKERS: (
        Cut(
            (
                (
                    Level(
                        "markers",
                        ("producer_id", "producer_epoch", "transaction_result"),
                        "markers",
                        ("producer_id",),
                    ),
                    Level("topics", ("name",), "topics", ("name",)),
                    Level("partition_indexes", None, "partitions"),
                ),
            ),
            size=PIECE // 4,
        ),
    ),
    ApiKey.CREATE_ACLS: (_flat("creations", _UNNAMED, "results"),),
    ApiKey.DELETE_ACLS: (_flat("filters", _UNNAMED, "filter_results", size=_FEW),),
    ApiKey.DESCRIBE_CONFIGS: (
        _flat("resources", ("resource_type", "resource_name"), "results", size=_FEW, most=10_000),
    ),
    ApiKey.ALTER_CONFIGS: (_CONFIGS,),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (_CONFIGS,),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (
        Cut(
            (
                (
                    Level("dirs", ("path",), ""),
                    Level("topics", ("name",), "results", ("topic_name",)),
                    Level("partitions", None, "partitions"),
                ),
            )
        ),
    ),
    ApiKey.CREATE_PARTITIONS: (_flat("topics", ("name",), "results", size=PIECE // 4),),
    ApiKey.DELETE_GROUPS: (_flat("groups_names", None, "results", size=PIECE // 4, most=_GROUPS),),
    ApiKey.ELECT_LEADERS: (
        Cut(
            (
                (
                    Level("topic_partitions", ("topic",), "replica_election_results", ("topic",)),
                    Level("partitions", None, "partition_result"),
                ),
            ),
            size=PIECE // 4,
        ),
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (_by_topic("name", "partition_index", "responses"),),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (_by_topic("name", None),),
    ApiKey.OFFSET_DELETE: (_by_topic("name", "partition_index"),),
    ApiKey.ALTER_CLIENT_QUOTAS: (_flat("entries", _UNNAMED, "entries"),),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (_flat("users", ("name",), "results"),),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (
        Cut(
            (
                (Level("deletions", ("name",), "results"),),
                (Level("upsertions", ("name",), "results"),),
            ),
            size=PIECE // 4,
        ),
    ),
    ApiKey.UPDATE_FEATURES: (_flat("feature_updates", ("feature",), "results"),),
    ApiKey.DESCRIBE_PRODUCERS: (_by_topic("name", None, size=_FEW),),
    ApiKey.DESCRIBE_TRANSACTIONS: (_flat("transactional_ids", None, "transaction_states"),),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (_flat("group_ids", None, "groups", most=_GROUPS),),
    ApiKey.SHARE_GROUP_DESCRIBE: (_flat("group_ids", None, "groups", most=_GROUPS),),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (
        Cut(
            (
                (
                    Level("groups", ("group_id",), "groups", ("group_id",)),
                    Level("topics", ("topic_name",), "topics", ("topic_name",)),
                    Level("partitions", None, "partitions"),
                ),
            )
        ),
    ),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: (_by_topic("topic_name", "partition_index", "responses"),),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: (_flat("topics", ("topic_name",), "responses"),),
    ApiKey.DESCRIBE_DELAYED: (_by_topic("name", "partition_index", size=_FEW, most=10_000),),
    ApiKey.QUEUE_OFFSETS: (_by_topic("name", "partition_index"),),
}


def cut_of(key: int, version: int) -> Cut | None:
    """How requests of an API and version are cut; None: they are not."""
    for cut in _CUTS.get(key, ()):
        if version in cut.versions:
            return cut
    return None


def is_long(cut: Cut, request: Struct) -> bool:
    """Whether a request has more elements than a piece."""
    count = 0
    for levels in cut.ways:
        for _ in _leaves(request, levels):
            count += 1
            if count > cut.size:
                return True
    return False


def _leaves(part: Any, levels: Sequence[Level]) -> Iterator[None]:
    """One for each element of the innermost array, and for each that has none."""
    level, *rest = levels
    items = getattr(part, level.items) or ()
    if not rest:
        for _ in items:
            yield None
        return
    for item in items:
        if not getattr(item, rest[0].items):
            yield None
        else:
            yield from _leaves(item, rest)


Handler = Callable[["Broker", RequestContext, Any], Any]


async def answer_in_pieces(
    handler: Handler, broker: "Broker", context: RequestContext, request: Any
) -> Any:
    """Have a request answered, a piece at a time if it is long.

    Raises:
        ApiError: it is refused as a whole.
        WireError: it has more elements than a request of its API may have.
    """
    cut = cut_of(context.api_key, context.api_version)
    if cut is None or not is_long(cut, request):
        return await outcome(handler(broker, context, request))
    response = None
    for levels in cut.ways:
        tree = await _grouped(request, levels, cut.most)
        for piece in _pieces(request, levels, tree, cut):
            await next_turn()
            answer = await outcome(handler(broker, context, piece))
            if response is None:
                response = answer
            else:
                _join(response, answer, levels)
    return response


async def outcome(answer: Any) -> Any:
    """What a handler answers: at once, as a coroutine, or as a delayed answer."""
    return await answer if hasattr(answer, "send") or isinstance(answer, Delayed) else answer


# Cutting


class _Node:
    """An element, and what it has in the next array; None: it has none."""

    __slots__ = ("children", "item")

    def __init__(self, item: Any, children: "list[_Node] | None") -> None:
        self.item = item
        self.children = children


async def _grouped(request: Any, levels: Sequence[Level], most: int) -> list[_Node]:
    """The elements without more than two of a name, those of a name beside each other."""
    pace, count = Pace(_GROUPED_AT_ONCE), 0

    async def grouped(parts: list[Any], rest: Sequence[Level]) -> list[_Node]:
        nonlocal count
        level, *inner = rest
        found: dict[Any, list[Any]] = {}
        for part in parts:
            for item in getattr(part, level.items) or ():
                if pace.is_over():
                    await next_turn()
                same = found.setdefault(_name(item, level.names, len(found)), [])
                if inner or len(same) < _TWICE:
                    same.append(item)
        nodes = []
        for same in found.values():
            if pace.is_over():
                await next_turn()
            if not inner or not any(getattr(one, inner[0].items) for one in same):
                nodes += [_Node(one, None) for one in same[:_TWICE]]
                count += min(len(same), _TWICE)
            else:
                nodes.append(_Node(same[0], await grouped(same, inner)))
        if count > most:
            raise WireError(f"more than {most} elements in a request")
        return nodes

    return await grouped([request], levels)


def _name(item: Any, names: tuple[str, ...] | None, number: int) -> Any:
    if names is None:
        return item
    if names is _UNNAMED:
        return number
    return tuple([getattr(item, name) for name in names])


def _pieces(request: Any, levels: Sequence[Level], tree: list[_Node], cut: Cut) -> Iterator[Any]:
    """Requests of at most ``cut.size`` of the innermost elements each."""
    others = [levels[0].items for levels in cut.ways]
    path: list[Any] = []  # the elements of a piece that is being made, from the outermost in
    left = cut.size

    def begin() -> None:
        nonlocal left
        path[:] = [_with(request, {name: [] for name in others})]
        setattr(path[0], levels[0].items, [])
        left = cut.size

    def walk(nodes: list[_Node], depth: int, outer: list[Any]) -> Iterator[Any]:
        nonlocal left
        for node in nodes:
            if left == 0:
                yield path[0]
                begin()
                for inner, item in enumerate(outer):
                    _append(path, levels, inner, item)
            if node.children is None:
                getattr(path[depth], levels[depth].items).append(node.item)
                left -= 1
            else:
                del path[depth + 1 :]
                _append(path, levels, depth, node.item)
                yield from walk(node.children, depth + 1, [*outer, node.item])
                del path[depth + 1 :]

    begin()
    yield from walk(tree, 0, [])
    if left < cut.size:
        yield path[0]


def _append(path: list[Any], levels: Sequence[Level], depth: int, item: Any) -> None:
    """Begin an element of a piece with nothing in its array."""
    begun = _with(item, {levels[depth + 1].items: []})
    getattr(path[depth], levels[depth].items).append(begun)
    path.append(begun)


def _with(part: Any, changes: dict[str, Any]) -> Any:
    """A copy with other values of some fields."""
    made = object.__new__(type(part))
    for name in type(part).__slots__:
        setattr(made, name, getattr(part, name))
    for name, value in changes.items():
        setattr(made, name, [*value])
    return made


# Joining


def _join(response: Any, answer: Any, levels: Sequence[Level]) -> None:
    """Put the answer to a piece behind that to the pieces before it."""
    _keep_error(response, answer)
    level, *rest = levels
    if not level.answer:
        _join(response, answer, rest)
        return
    have, more = getattr(response, level.answer), getattr(answer, level.answer)
    if rest and have and more and level.label and _same(have[-1], more[0], level.label):
        _join(have[-1], more[0], rest)
        more = more[1:]
    have += more


def _keep_error(response: Any, answer: Any) -> None:
    """Keep the first error of the pieces: the answer to the one that failed lacks its elements."""
    code = getattr(answer, "error_code", ErrorCode.NONE)
    if code and not response.error_code:
        response.error_code = code
        if hasattr(answer, "error_message"):
            response.error_message = answer.error_message


def _same(one: Any, other: Any, label: tuple[str, ...]) -> bool:
    return all(getattr(one, name) == getattr(other, name) for name in label)

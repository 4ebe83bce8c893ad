"""Routes of topics: whatever the links look like, no loops, and one route to each topic."""

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import replace
from uuid import UUID, uuid5

import pytest

from qbus.clients.mirror.config import LinkConfig
from qbus.clients.mirror.provenance import Provenance
from qbus.clients.mirror.routes import Plan, Topic, plan, route_of
from qbus.clients.mirror.status import Trouble

SPACE = UUID(int=1)


def topic(name: str, partitions: int = 3, topic_id: UUID | None = None, **config: str) -> Topic:
    return Topic(name, topic_id or uuid5(SPACE, name), partitions, config)


def mirror(
    name: str, source: str, *path: str, of: UUID | None = None, partitions: int = 3
) -> Topic:
    original = of or uuid5(SPACE, name.removeprefix(f"{source}."))
    config = Provenance(source, str(original), (source, *path)).config()
    return Topic(name, uuid5(SPACE, f"a copy of {name}"), partitions, config)


def link(source: str = "a", target: str = "b", topics: str = ".*", **kwargs: object) -> LinkConfig:
    config = LinkConfig(source, target, "s:1", "t:1", (topics,))
    return replace(config, **kwargs)  # type: ignore[arg-type]


def named(*topics: Topic) -> dict[str, Topic]:
    return {one.name: one for one in topics}


def planned(config: LinkConfig, source: Iterable[Topic], *target: Topic) -> Plan:
    return plan(config, named(*source), named(*target))


# A topic by itself.


def test_a_topic_of_the_source_gets_its_name_before_its_own() -> None:
    found = route_of(link(), topic("orders"))
    assert found is not None
    assert (found.topic, found.target_topic) == ("orders", "a.orders")
    assert found.provenance == Provenance("a", str(uuid5(SPACE, "orders")), ("a",))


def test_a_relayed_topic_keeps_the_name_and_the_id_of_its_origin() -> None:
    found = route_of(link("b", "c"), mirror("a.orders", "a"))
    assert found is not None
    assert found.target_topic == "a.orders"
    assert found.provenance == Provenance("a", str(uuid5(SPACE, "orders")), ("a", "b"))


@pytest.mark.parametrize(
    "origin",
    [
        mirror("b.orders", "b"),  # it is the target's own
        mirror("c.orders", "c", "b"),  # it has been at the target
        mirror("c.orders", "c", "b", "d"),
        mirror("c.orders", "c", "a"),  # it has been here before: a loop already
        mirror("a.orders", "a", "c"),
    ],
)
def test_no_topic_returns_to_a_datacenter_of_its_path(origin: Topic) -> None:
    assert route_of(link(), origin) is None


def test_a_name_that_looks_like_a_copy_is_none_without_the_configuration() -> None:
    found = route_of(link(), topic("b.orders"))
    assert found is not None
    assert found.target_topic == "a.b.orders"


def test_unselected_topics_have_no_route() -> None:
    assert route_of(link(topics="ord.*"), topic("payments")) is None
    assert route_of(link(exclude=("orders",)), topic("orders")) is None
    assert route_of(link(), replace(topic("__consumer_offsets"), is_internal=True)) is None
    assert route_of(link(relay=False), mirror("c.orders", "c")) is None


def test_a_source_without_topic_ids() -> None:
    found = route_of(link(), Topic("orders", UUID(int=0), 1, {}))
    assert found is not None
    assert found.provenance.topic_id == ""


# What the target has.


def test_new_topics_are_created_and_existing_mirrors_copied() -> None:
    found = planned(link(), [topic("orders"), topic("payments")], mirror("a.orders", "a"))
    assert [one.target_topic for one in found.create] == ["a.payments"]
    assert [one.target_topic for one in found.mirror] == ["a.orders"]
    assert not found.take_over
    assert not found.obstacles


@pytest.mark.parametrize(
    ("existing", "trouble"),
    [
        (topic("a.orders"), Trouble.UNRELATED_TOPIC),
        (mirror("a.orders", "c"), Trouble.UNRELATED_TOPIC),
        (mirror("a.orders", "a", of=UUID(int=77)), Trouble.SOURCE_RECREATED),
        (mirror("a.orders", "a", "c", of=UUID(int=77)), Trouble.SOURCE_RECREATED),
        (mirror("a.orders", "a", partitions=4), Trouble.UNRELATED_TOPIC),
    ],
)
def test_unrelated_topics_are_obstacles(existing: Topic, trouble: Trouble) -> None:
    found = planned(link(), [topic("orders")], existing)
    assert (found.create, found.mirror, found.take_over) == ((), (), ())
    (obstacle,) = found.obstacles
    assert obstacle.trouble is trouble
    assert "a.orders" in obstacle.reason


def test_a_topic_of_another_path_is_left_alone() -> None:
    relayed = mirror("c.orders", "c")
    found = planned(link("b", "a"), [relayed], mirror("c.orders", "c", "d"))
    assert found == Plan((), (), (), ())


def test_a_shorter_path_takes_over() -> None:
    found = planned(link("a", "c"), [topic("orders")], mirror("a.orders", "a", "b"))
    assert [one.provenance.path for one in found.take_over] == [("a",)]
    assert not found.mirror


def test_a_longer_path_does_not_take_over() -> None:
    found = planned(link("b", "c"), [mirror("a.orders", "a")], mirror("a.orders", "a"))
    assert found == Plan((), (), (), ())


def test_a_name_that_gets_too_long() -> None:
    found = planned(link(), [topic("o" * 248)])
    assert not found.create
    assert len(found.obstacles) == 1


def test_two_topics_that_would_get_one_name() -> None:
    """``x.orders`` of the source itself, relayed from x, and one that begins like its copies."""
    source = [mirror("a.orders", "a0"), topic("orders")]
    found = planned(link("a", "b"), source)
    assert [one.topic for one in found.create] == ["orders"]


def test_a_copy_whose_source_is_gone_is_kept_as_an_obstacle() -> None:
    partitions = [mirror("a.orders", "a"), mirror("c.relayed", "c", "a"), mirror("d.other", "d")]
    found = planned(link(), [], *partitions)
    assert {one.route.target_topic for one in found.obstacles} == {"a.orders", "c.relayed"}
    assert {one.trouble for one in found.obstacles} == {Trouble.SOURCE_DELETED}
    assert planned(link(topics="nothing"), [], *partitions) == Plan((), (), (), ())


# Whole worlds of IDCs.


class World:
    """IDCs with a topic each, and links that act on their plans, in any order."""

    def __init__(self, idcs: str, links: Iterable[tuple[str, str]]) -> None:
        self.topics = {idc: named(topic("orders", topic_id=uuid5(SPACE, idc))) for idc in idcs}
        self.links = [link(source, target) for source, target in links]

    def step(self, config: LinkConfig) -> bool:
        """Let one link do what it plans; whether that changed anything."""
        target = self.topics[config.target]
        found = plan(config, self.topics[config.source], target)
        assert not found.obstacles
        for one in (*found.create, *found.take_over):
            made = Topic(
                one.target_topic,
                uuid5(SPACE, f"{one.target_topic} at {config.target}"),
                one.partitions,
                one.provenance.config(),
            )
            target[one.target_topic] = made
        return bool(found.create or found.take_over)

    def settle(self, links: Iterable[LinkConfig]) -> None:
        order = list(links)
        for _ in range(100):
            changes = [self.step(config) for config in order]
            if not any(changes):
                return
        raise AssertionError("links create topics for ever")

    def writers(self) -> Mapping[tuple[str, str], list[str]]:
        """Who writes each mirrored topic: by IDC and name."""
        writers: dict[tuple[str, str], list[str]] = {}
        for config in self.links:
            found = plan(config, self.topics[config.source], self.topics[config.target])
            for one in found.mirror:
                writers.setdefault((config.target, one.target_topic), []).append(config.source)
        return writers


def ring(idcs: str) -> list[tuple[str, str]]:
    return [(idc, idcs[(i + 1) % len(idcs)]) for i, idc in enumerate(idcs)]


def both_ways(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return [pair for one in pairs for pair in (one, one[::-1])]


SHAPES = {
    "a pair": ("ab", both_ways([("a", "b")])),
    "one way": ("ab", [("a", "b")]),
    "a ring of three": ("abc", ring("abc")),
    "a ring of five": ("abcde", ring("abcde")),
    "a ring both ways": ("abcd", both_ways(ring("abcd"))),
    "a mesh of three": ("abc", list(itertools.permutations("abc", 2))),
    "a mesh of four": ("abcd", list(itertools.permutations("abcd", 2))),
    "a star": ("abcd", both_ways([("a", "b"), ("a", "c"), ("a", "d")])),
    "a chain": ("abcd", [("a", "b"), ("b", "c"), ("c", "d")]),
    "a chain both ways": ("abcd", both_ways([("a", "b"), ("b", "c"), ("c", "d")])),
    "a diamond": ("abcd", [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")]),
    "two rings that meet": ("abcde", [*ring("abc"), *ring("cde")]),
}


def reachable(idcs: str, links: Iterable[tuple[str, str]], origin: str) -> set[str]:
    pairs, found = list(links), {origin}
    for _ in idcs:
        found |= {target for source, target in pairs if source in found}
    return found


@pytest.mark.parametrize("shape", SHAPES)
def test_every_idc_gets_each_topic_once_and_none_of_its_own(shape: str) -> None:
    idcs, links = SHAPES[shape]
    world = World(idcs, links)
    count = len(world.links)
    orders = itertools.permutations(world.links) if count <= 4 else rotations(world.links)
    for order in orders:
        world = World(idcs, links)
        world.settle(order)
        for idc in idcs:
            others = {one for one in idcs if one != idc and idc in reachable(idcs, links, one)}
            assert set(world.topics[idc]) == {"orders", *(f"{one}.orders" for one in others)}
        for (idc, name), writers in world.writers().items():
            assert len(writers) == 1, f"{name} at {idc} is written by {writers}"
            provenance = Provenance.of(world.topics[idc][name].config)
            assert provenance is not None
            assert idc not in provenance.path
            assert len(set(provenance.path)) == len(provenance.path)
            assert writers == [provenance.path[-1]]


def rotations(links: list[LinkConfig]) -> list[list[LinkConfig]]:
    turned = [links[i:] + links[:i] for i in range(len(links))]
    return turned + [order[::-1] for order in turned]


@pytest.mark.parametrize("shape", ["a mesh of three", "a mesh of four", "a ring both ways"])
def test_topics_end_up_on_the_shortest_path(shape: str) -> None:
    idcs, links = SHAPES[shape]
    for order in rotations(World(idcs, links).links):
        world = World(idcs, links)
        world.settle(order)
        for source, target in links:
            provenance = Provenance.of(world.topics[target][f"{source}.orders"].config)
            assert provenance is not None
            assert provenance.path == (source,)

"""Members and topics in few words, and what hypothesis makes of them."""

from collections.abc import Mapping, Sequence

from hypothesis import strategies as st

from qbus.clients.group.assignors import Assignments, Assignor, Candidate, Previous, Topics
from qbus.clients.types import TopicPartition
from qbus.consumer_protocol import Subscription

topic_names = st.sampled_from(["a", "b", "c", "d"])
wanted = st.sets(topic_names, max_size=4).map(sorted).map(tuple)
member_names = st.text("mnopq", min_size=1, max_size=3)
subscriptions = st.dictionaries(member_names, wanted, min_size=1, max_size=7)
counts = st.dictionaries(topic_names, st.integers(1, 9), max_size=4)


def topics_of(counts: Mapping[str, int]) -> Topics:
    return {topic: [frozenset()] * count for topic, count in counts.items()}


def member(
    name: str,
    topics: Sequence[str] = ("t",),
    *,
    instance: str | None = None,
    owned: Sequence[TopicPartition] = (),
    generation: int = -1,
    user_data: bytes | None = None,
    rack: str | None = None,
) -> Candidate:
    said = Subscription(tuple(topics), tuple(owned), user_data, generation, rack)
    return Candidate(name, instance, said)


def members_of(subscriptions: Mapping[str, Sequence[str]]) -> list[Candidate]:
    return [member(name, topics) for name, topics in subscriptions.items()]


def rejoining(
    assignor: Assignor,
    subscriptions: Mapping[str, Sequence[str]],
    before: Assignments,
    generation: int = 1,
) -> list[Candidate]:
    """Members that come back to a rebalance, and say what they have as their assignor does it."""
    members = []
    for name, topics in subscriptions.items():
        previous = Previous(tuple(before[name]), generation) if name in before else None
        owned = previous.partitions if previous and assignor.is_cooperative else ()
        data = assignor.user_data(previous)
        members.append(
            member(
                name, topics, owned=owned, generation=generation if owned else -1, user_data=data
            )
        )
    return members


def all_of(assigned: Assignments) -> list[TopicPartition]:
    return sorted(partition for partitions in assigned.values() for partition in partitions)


def wanted_of(
    subscriptions: Mapping[str, Sequence[str]], counts: Mapping[str, int]
) -> list[TopicPartition]:
    """Every partition that someone wants."""
    names = {topic for topics in subscriptions.values() for topic in topics}
    return sorted(
        TopicPartition(topic, index)
        for topic, count in counts.items()
        for index in range(count)
        if topic in names
    )

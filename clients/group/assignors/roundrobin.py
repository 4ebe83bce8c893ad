"""The roundrobin assignor: all partitions in turn to all members that want them."""

from collections.abc import Sequence

from .base import Assignments, Assignor, Candidate, Topics, in_order, java_order, partitions_of


class RoundRobinAssignor(Assignor):
    """Assigns as Kafka's RoundRobinAssignor does: the same result under any leader."""

    name = "roundrobin"

    def assign(self, members: Sequence[Candidate], topics: Topics) -> Assignments:
        """Deal out the partitions of all topics like cards."""
        assigned: Assignments = {member.member_id: [] for member in members}
        circle = in_order(members)
        wants = [frozenset(member.subscription.topics) for member in circle]
        turn = 0
        for topic in sorted(topics.keys() & frozenset().union(*wants), key=java_order):
            for partition in partitions_of(topic, topics):
                while topic not in wants[turn]:
                    turn = (turn + 1) % len(circle)
                assigned[circle[turn].member_id].append(partition)
                turn = (turn + 1) % len(circle)
        return assigned

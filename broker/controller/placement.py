"""Where the replicas of new partitions go."""

from collections.abc import Iterable, Mapping, Sequence
from random import Random

from qbus.errors import ApiError, ErrorCode

Assignment = Mapping[int, tuple[int, ...]]
"""Partition -> brokers, the preferred leader first."""


def place(
    brokers: Iterable[int], first: int, count: int, replication_factor: int, random: Random
) -> dict[int, tuple[int, ...]]:
    """Spread ``count`` partitions from number ``first`` on evenly, beginning with a random broker.

    Leaders go round the brokers. Followers of one leader go round the others, one further each time
    round, so that the partitions of a broker that fails do not all fall to the same one.

    Raises:
        ApiError: INVALID_REPLICATION_FACTOR, there are fewer brokers than replicas.
    """
    ring = sorted(brokers)
    if replication_factor > len(ring):
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{replication_factor} replicas need as many brokers, there are {len(ring)}",
        )
    start, shift = random.randrange(len(ring)), random.randrange(len(ring))
    assignment = {}
    for number in range(count):
        leader = (start + number) % len(ring)
        others = len(ring) - 1
        step = shift + number // len(ring)
        followers = (
            (leader + 1 + (step + replica) % others) % len(ring)
            for replica in range(replication_factor - 1)
        )
        assignment[first + number] = tuple(ring[i] for i in (leader, *followers))
    return assignment


def check_assignment(
    assignment: Mapping[int, Sequence[int]], first: int, brokers: Iterable[int]
) -> dict[int, tuple[int, ...]]:
    """The assignment that somebody asked for, of partitions from number ``first`` on.

    Raises:
        ApiError: INVALID_REPLICA_ASSIGNMENT; the message says why.
    """
    live = set(brokers)
    checked = {index: tuple(assignment[index]) for index in sorted(assignment)}
    factors = {len(replicas) for replicas in checked.values()}
    if not checked or 0 in factors:
        raise _refusal("every partition needs at least one replica")
    if list(checked) != list(range(first, first + len(checked))):
        raise _refusal(f"the partitions must be numbered from {first} on, without a gap")
    if len(factors) > 1:
        raise _refusal("every partition must have as many replicas as the others")
    for index, replicas in checked.items():
        if len(set(replicas)) < len(replicas):
            raise _refusal(f"partition {index} has a broker twice: {list(replicas)}")
        if unknown := set(replicas) - live:
            raise _refusal(f"partition {index} is on brokers that are not there: {sorted(unknown)}")
    return checked


def _refusal(why: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)

"""The placement of new partitions' replicas on brokers."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import zip_longest
from random import Random
from types import MappingProxyType

from qbus.errors import ApiError, ErrorCode

Assignment = Mapping[int, tuple[int, ...]]
"""Partition -> brokers, the preferred leader first."""

NO_MACHINES: Mapping[int, str] = MappingProxyType({})


def place(
    racks: Mapping[int, str | None],
    first: int,
    count: int,
    replication_factor: int,
    random: Random,
    like: Sequence[int] = (),
    machines: Mapping[int, str] = NO_MACHINES,
) -> dict[int, tuple[int, ...]]:
    """Spread ``count`` partitions from number ``first`` on evenly over brokers, given their racks.

    Leaders go round the brokers, which alternate between racks. Followers go round the other
    brokers, one rack after the other and shifted by one step in each round, so that the partitions
    of a failed broker are spread over several others (Kafka's ``AdminUtils``, KIP-36). Racks are
    ignored if any broker has none. The first broker is random; for a topic that grows, placement
    continues after ``like``, the replicas of its first partition. No two replicas of a partition
    are on one machine: ``machines`` are those of brokers that share one.

    Raises:
        ApiError: INVALID_REPLICATION_FACTOR, there are fewer brokers, or machines, than replicas.
    """
    places = room(racks, machines)
    if replication_factor > places:
        what = "brokers" if places == len(racks) else "machines"
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{replication_factor} replicas need as many {what}, there are {places}",
        )
    known = {broker: rack for broker, rack in racks.items() if rack is not None}
    if len(known) < len(racks):
        known = dict.fromkeys(racks, "")
    ring = _alternating(known)
    if like and like[0] in ring:
        start = shift = ring.index(like[0])
    else:
        start, shift = random.randrange(len(ring)), random.randrange(len(ring))
    steps = len(set(known.values()))
    return {
        number: _replicas(
            ring,
            known,
            (start + number) % len(ring),
            (shift + number // len(ring)) * steps,
            replication_factor,
            machines,
        )
        for number in range(first, first + count)
    }


def _alternating(racks: Mapping[int, str]) -> list[int]:
    """Order the brokers so that racks alternate."""
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker], []).append(broker)
    rounds = zip_longest(*(by_rack[rack] for rack in sorted(by_rack)))
    return [broker for turn in rounds for broker in turn if broker is not None]


def _replicas(
    ring: Sequence[int],
    racks: Mapping[int, str],
    leader: int,
    shift: int,
    factor: int,
    machines: Mapping[int, str],
) -> tuple[int, ...]:
    """Choose a partition's brokers: no rack gets a second replica while another has none.

    No machine ever gets a second one.
    """
    others = len(ring) - 1
    left = [ring[(leader + 1 + (shift + step) % others) % len(ring)] for step in range(others)]
    chosen = [ring[leader]]
    free = set(racks.values()) - {racks[ring[leader]]}
    while len(chosen) < factor:
        taken = {machines[broker] for broker in chosen if broker in machines}
        left = [broker for broker in left if machines.get(broker) not in taken]
        elsewhere = (broker for broker in left if racks[broker] in free)
        following = next(elsewhere, left[0])
        left.remove(following)
        free.discard(racks[following])
        chosen.append(following)
    return tuple(chosen)


def room(brokers: Collection[int], machines: Mapping[int, str]) -> int:
    """On how many machines these brokers are: how many replicas a partition can have."""
    return len({machines.get(broker, broker) for broker in brokers})


def sharing(replicas: Sequence[int], machines: Mapping[int, str]) -> str | None:
    """Why a partition may not be on these brokers, if two of them share a machine."""
    shared = Counter(machines[broker] for broker in replicas if broker in machines)
    for machine, count in shared.items():
        if count > 1:
            both = [broker for broker in replicas if machines.get(broker) == machine]
            return f"brokers {both} run on one machine, which would lose them together"
    return None


def check_assignment(
    assignment: Mapping[int, Sequence[int]],
    first: int,
    brokers: Iterable[int],
    machines: Mapping[int, str] = NO_MACHINES,
) -> dict[int, tuple[int, ...]]:
    """Check a requested assignment of the partitions from number ``first`` on.

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
        if why := sharing(replicas, machines):
            raise _refusal(f"partition {index}: {why}")
    return checked


def _refusal(why: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)

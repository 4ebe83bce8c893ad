"""Reassignment plans: in the JSON of Kafka's tool, and computed."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

from qbus.clients.types import TopicPartition
from qbus.errors import ConfigError

Plan = dict[TopicPartition, tuple[int, ...]]
"""The brokers of each partition; the first is its preferred leader."""


def parse_plan(text: str, origin: str) -> Plan:
    """Parse a plan; a ConfigError begins with ``origin``."""
    plan: Plan = {}
    try:
        document = json.loads(text)
        if document.get("version", 1) != 1:
            raise ConfigError(f"{origin}: only plans of version 1 are supported")
        for entry in document["partitions"]:
            place = TopicPartition(str(entry["topic"]), int(entry["partition"]))
            replicas = tuple(map(int, entry["replicas"]))
            if set(entry.get("log_dirs", ())) - {"any"}:
                raise ConfigError(
                    f"{origin}: {place.topic}-{place.partition}: log_dirs is not followed here;"
                    " 'qbus log-dirs move' moves replicas between directories"
                )
            _need_valid(place, replicas, plan, origin)
            plan[place] = replicas
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f'{origin}: expected {{"version": 1, "partitions": [{{"topic": "t", "partition": 0,'
            ' "replicas": [1, 2]}, ...]}'
        ) from error
    if not plan:
        raise ConfigError(f"{origin}: the plan names no partition")
    return plan


def plan_of(moves: Iterable[tuple[str, int, tuple[int, ...]]]) -> Plan:
    """The plan of single moves: topic, partition, brokers."""
    plan: Plan = {}
    for topic, partition, replicas in moves:
        place = TopicPartition(topic, partition)
        _need_valid(place, replicas, plan, "--move")
        plan[place] = replicas
    return plan


def _need_valid(place: TopicPartition, replicas: Sequence[int], plan: Plan, origin: str) -> None:
    name = f"{origin}: {place.topic}-{place.partition}"
    if place in plan:
        raise ConfigError(f"{name} comes twice")
    if not replicas:
        raise ConfigError(f"{name} has no replicas")
    if len(set(replicas)) < len(replicas):
        raise ConfigError(f"{name} is on a broker twice")


def plan_document(plan: Mapping[TopicPartition, Iterable[int]]) -> dict[str, Any]:
    """The plan as Kafka's tool writes it."""
    return {
        "version": 1,
        "partitions": [
            {"topic": place.topic, "partition": place.partition, "replicas": list(replicas)}
            for place, replicas in sorted(plan.items())
        ],
    }


def spread(
    current: Mapping[TopicPartition, Sequence[int]], brokers: Mapping[int, str | None]
) -> Plan:
    """Spread partitions evenly over ``brokers`` (each with its rack), with few moves.

    Each partition keeps its number of replicas, on as many racks as possible. Raises ConfigError if
    there are too few brokers.
    """
    placed = {
        place: [node for node in replicas if node in brokers]
        for place, replicas in sorted(current.items())
    }
    load = Counter(dict.fromkeys(brokers, 0))
    load.update(node for kept in placed.values() for node in kept)
    for place, kept in placed.items():
        if len(current[place]) > len(brokers):
            count = len(current[place])
            raise ConfigError(
                f"{place.topic}-{place.partition} has {count} replicas: name more brokers"
            )
        while len(kept) < len(current[place]):
            node = _best(kept, brokers, load)
            kept.append(node)
            load[node] += 1
    while _relieve(placed, brokers, load):
        pass
    return _with_leaders(placed, len(brokers))


def _best(kept: Sequence[int], brokers: Mapping[int, str | None], load: Mapping[int, int]) -> int:
    racks = {brokers[node] for node in kept} - {None}
    others = (node for node in brokers if node not in kept)
    return min(others, key=lambda node: (brokers[node] in racks, load[node], node))


def _relieve(
    placed: Mapping[TopicPartition, list[int]],
    brokers: Mapping[int, str | None],
    load: Counter[int],
) -> bool:
    """Move one replica from a broker with many to one with few; False if nothing is left to do."""
    by_load = sorted(brokers, key=lambda node: (load[node], node))
    for full, free in product(reversed(by_load), by_load):
        if load[full] - load[free] < 2:
            continue
        for kept in placed.values():
            if full not in kept or free in kept:
                continue
            other = [free if node == full else node for node in kept]
            if len({brokers[node] for node in other}) >= len({brokers[node] for node in kept}):
                kept[:] = other
                load.update({full: -1, free: 1})
                return True
    return False


def _with_leaders(placed: Mapping[TopicPartition, Sequence[int]], brokers: int) -> Plan:
    share = -(-len(placed) // brokers) if brokers else 0
    leads: Counter[int] = Counter()
    plan: Plan = {}
    for place, replicas in placed.items():
        first = replicas[0]
        if leads[first] >= share:
            first = min(replicas, key=lambda node: leads[node])
        leads[first] += 1
        plan[place] = (first, *(node for node in replicas if node != first))
    return plan

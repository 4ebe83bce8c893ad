"""What the metrics of queues say."""

import pytest

from qbus.broker.metrics import Metrics
from qbus.broker.partition.background_tasks import BackgroundTasks
from qbus.broker.queues import metrics as queue_metrics
from qbus.broker.queues.metrics import register_metrics

from .queues import World, accept, release, take


def read(metrics: Metrics) -> dict[str, dict[tuple[str, ...], float]]:
    return {
        family.name: {tuple(sample.labels.values()): sample.value for sample in family.samples}
        for family in metrics.collect()
        if family.name.startswith("qbus_queue")
    }


async def test_queues_are_summed_up_by_topic_and_group(world: World) -> None:
    metrics = Metrics()
    tasks = BackgroundTasks()
    register_metrics(metrics, world.plane.queues, tasks)
    await world.add(b"a", b"b", b"c", b"d", b"e")
    queue = world.queue(delivery_limit=1)
    await world.add(b"f")
    world.clock.advance(5)
    await take(queue, 3)
    await accept(queue, 0)
    await release(queue, 1)
    await tasks["measure queues"].run()
    values = read(metrics)
    labels = ("jobs", "workers")
    assert {name.removeprefix("qbus_queue_"): found[labels] for name, found in values.items()} == {
        "length": 3,
        "in_flight": 1,
        "delayed": 0,
        "given_up": 0,
        "oldest_seconds": 5,
        "waiting": 0,
        "records_in": 1,
        "records_taken": 3,
        "records_acknowledged": 1,
        "records_released": 1,
        "timeouts": 0,
        "dead_letters": 0,
        "records_dropped": 1,
        "records_filtered": 0,
        "records_expired": 0,
    }


async def test_the_number_of_series_is_bounded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_metrics, "_MOST_QUEUES", 2)
    metrics = Metrics()
    tasks = BackgroundTasks()
    register_metrics(metrics, world.plane.queues, tasks)
    await world.add(b"a")
    for name in "abcd":
        world.queue(name)
    await tasks["measure queues"].run()
    found = read(metrics)["qbus_queue_length"]
    assert found == {("jobs", "a"): 1, ("jobs", "b"): 1, ("(others)", "(others)"): 2}

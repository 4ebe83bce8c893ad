"""Which partitions an operator is shown."""

import pytest

from qbus.cli.topic.health import Filters
from qbus.clients.types import PartitionDescription


def partition(*isr: int, leader: int = 1) -> PartitionDescription:
    return PartitionDescription(0, leader, 0, (1, 2, 3), isr, ())


WHOLE, LAGGING, LOW, DEAD = partition(1, 2, 3), partition(1, 2), partition(1), partition(leader=-1)


@pytest.mark.parametrize(
    ("filters", "chosen"),
    [
        (Filters(), [WHOLE, LAGGING, LOW, DEAD]),
        (Filters(under_replicated=True), [LAGGING, LOW, DEAD]),
        (Filters(under_min_isr=True), [LOW, DEAD]),
        (Filters(unavailable=True), [DEAD]),
        (Filters(unavailable=True, under_min_isr=True), [LOW, DEAD]),
    ],
)
def test_filters(filters: Filters, chosen: list[PartitionDescription]) -> None:
    every = [WHOLE, LAGGING, LOW, DEAD]
    assert [one for one in every if filters.selects(one, 2)] == chosen

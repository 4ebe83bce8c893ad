"""Partitions as users name them: their numbers may be any integers, and are Python's then."""

from qbus import TopicPartition
from qbus.clients.types import keyed, named, where_and_value, where_of, with_offset


class Number:
    """An integer that is none of Python's, such as NumPy's."""

    def __index__(self) -> int:
        return 3


PLACE = TopicPartition("t", 3)


def test_numbers_of_other_kinds() -> None:
    number: int = Number()  # type: ignore[assignment]
    found = [
        where_of("t", number),
        where_of(("t", number), None),
        where_and_value("t", number, 7, "offset")[0],
        with_offset(("t", number, 7))[0],
        *named([("t", number)]),
        *keyed({("t", number): 7}),
    ]
    assert found == [PLACE] * 6
    assert {type(place.partition) for place in found} == {int}

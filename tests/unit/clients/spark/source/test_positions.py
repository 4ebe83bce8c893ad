"""Where a query begins and ends, as users of Spark's Kafka connector say it."""

import pytest

from qbus.clients.spark.options import OptionError, Options
from qbus.clients.spark.source.positions import (
    ChosenPositions,
    check_order,
    ending,
    refuse_ending,
    starting,
)
from qbus.clients.types import EARLIEST, LATEST, OffsetAndTimestamp, TopicPartition

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
ENDS = {A0: 100, A1: 200}
NONE = OffsetAndTimestamp(-1, -1)


def test_batches_start_at_the_earliest_and_streams_at_the_latest() -> None:
    none = Options({})
    assert starting(none, is_batch=True).look_up(ENDS) == {A0: EARLIEST, A1: EARLIEST}
    assert starting(none, is_batch=False).look_up(ENDS) == {A0: LATEST, A1: LATEST}
    assert ending(none).look_up(ENDS) == {A0: LATEST, A1: LATEST}


def test_offsets_are_named_for_each_partition() -> None:
    chosen = starting(Options({"startingOffsets": '{"a": {"0": 5, "1": -1}}'}), is_batch=False)
    assert chosen.look_up(ENDS) == {A1: LATEST}
    assert chosen.resolve(ENDS, {A1: OffsetAndTimestamp(200, -1)}, ENDS) == {A0: 5, A1: 200}


def test_a_time_counts_more_than_offsets() -> None:
    options = Options({"startingTimestamp": "1000", "startingOffsets": "earliest"})
    assert starting(options, is_batch=True).look_up(ENDS) == {A0: 1000, A1: 1000}
    options = Options({"endingOffsetsByTimestamp": '{"a": {"0": 7, "1": 8}}'})
    assert ending(options).look_up(ENDS) == {A0: 7, A1: 8}


def test_a_time_after_the_last_record_is_an_error_unless_told_otherwise() -> None:
    late = {A0: NONE, A1: OffsetAndTimestamp(3, 9)}
    options = {"startingTimestamp": "1000"}
    with pytest.raises(OptionError, match="a-0 has no record that late"):
        starting(Options(options), is_batch=True).resolve(ENDS, late, ENDS)
    options["startingOffsetsByTimestampStrategy"] = "LATEST"
    found = starting(Options(options), is_batch=True).resolve(ENDS, late, ENDS)
    assert found == {A0: 100, A1: 3}


def test_an_end_after_the_last_record_is_the_end() -> None:
    chosen = ending(Options({"endingTimestamp": "1000"}))
    assert chosen.resolve([A0], {A0: NONE}, ENDS) == {A0: 100}


@pytest.mark.parametrize(
    ("offsets", "message"),
    [({A0: 1}, "missing.*a-1"), ({A0: 1, A1: 1, TopicPartition("b", 0): 1}, "do not exist.*b-0")],
)
def test_positions_name_exactly_the_partitions(
    offsets: dict[TopicPartition, int], message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        ChosenPositions("startingOffsets", offsets=offsets).look_up(ENDS)


@pytest.mark.parametrize(
    "text",
    ["first", "5", "[1]", "{}", '{"a": 1}', '{"a": {"0": -3}}', '{"a": {"x": 1}}']
    + ['{"a": {"0": 1.5}}', '{"a": {"0": true}}', '{"a": {"0": null}}'],
)
def test_invalid_offsets_are_refused(text: str) -> None:
    with pytest.raises(OptionError, match=r"option startingOffsets: .*give earliest, latest or"):
        starting(Options({"startingOffsets": text}), is_batch=True)


@pytest.mark.parametrize("text", ["latest", '{"a": {"0": -1}}'])
def test_a_batch_does_not_begin_at_the_end(text: str) -> None:
    with pytest.raises(OptionError, match="batch"):
        starting(Options({"startingOffsets": text}), is_batch=True)


@pytest.mark.parametrize("text", ["earliest", '{"a": {"0": -2}}'])
def test_a_batch_does_not_end_at_the_beginning(text: str) -> None:
    with pytest.raises(OptionError, match="batch"):
        ending(Options({"endingOffsets": text}))


def test_a_batch_does_not_end_before_it_starts() -> None:
    start = starting(Options({"startingOffsets": '{"a": {"0": 5, "1": -2}}'}), is_batch=True)
    for end in ("latest", '{"a": {"0": 5, "1": 0}}', '{"a": {"0": -1, "1": 0}}'):
        check_order(start, ending(Options({"endingOffsets": end})))
    wrong = ending(Options({"endingOffsets": '{"a": {"0": 4, "1": 9}}'}))
    with pytest.raises(OptionError, match=r"endingOffsets: a-0 would end at offset 4, before.* 5"):
        check_order(start, wrong)


def test_streams_do_not_end() -> None:
    refuse_ending(Options({}))
    with pytest.raises(OptionError, match="availableNow"):
        refuse_ending(Options({"endingTimestamp": "5"}))

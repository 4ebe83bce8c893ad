"""Where a query starts and ends: the options starting... and ending..., as positions in partitions.

A position is an offset, or has to be looked up: a time in milliseconds since the Unix epoch, or
EARLIEST or LATEST.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...types import EARLIEST, LATEST, OffsetAndTimestamp, TopicPartition
from ..options import OptionError, Options

STARTING_OPTIONS = (
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsets",
    "startingOffsetsByTimestampStrategy",
)
ENDING_OPTIONS = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")

_WORDS = {"earliest": EARLIEST, "latest": LATEST}


@dataclass(frozen=True)
class ChosenPositions:
    """The chosen position: one for all partitions, or one for each.

    option: the name of the option, for errors.
    everywhere: the time for all partitions; None: ``offsets`` or ``times`` has each.
    or_latest: whether a time after the last record means LATEST; otherwise it is an error.
    """

    option: str
    everywhere: int | None = None
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    times: Mapping[TopicPartition, int] = field(default_factory=dict)
    or_latest: bool = True

    def look_up(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The times to look up; raises :class:`OptionError` if partitions and positions differ."""
        wanted = set(partitions)
        if self.everywhere is not None:
            return dict.fromkeys(wanted, self.everywhere)
        named = self.offsets.keys() | self.times.keys()
        for wrong, problem in (
            (wanted - named, "partitions are missing; -2 is earliest, -1 latest"),
            (named - wanted, "partitions do not exist, or are not subscribed to"),
        ):
            if wrong:
                raise OptionError(self.option, None, f"these {problem}: {_listed(wrong)}")
        return {**{where: at for where, at in self.offsets.items() if at < 0}, **self.times}

    def resolve(
        self,
        partitions: Iterable[TopicPartition],
        found: Mapping[TopicPartition, OffsetAndTimestamp],
        latest: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, int]:
        """The offset in each partition; ``found`` has the results of the look-up.

        Raises :class:`OptionError` for a time after the last record, if that is an error.
        """
        resolved: dict[TopicPartition, int] = {}
        for partition in partitions:
            if partition not in found:
                resolved[partition] = self.offsets[partition]
            elif found[partition].offset >= 0:
                resolved[partition] = found[partition].offset
            elif self.or_latest:
                resolved[partition] = latest[partition]
            else:
                remedy = (
                    f"{_listed([partition])} has no record that late; choose an earlier time, or"
                    " startingOffsetsByTimestampStrategy=latest"
                )
                raise OptionError(self.option, None, remedy)
        return resolved


def starting(options: Options, *, is_batch: bool) -> ChosenPositions:
    """Where to start; by default a batch starts at the earliest record, a stream at the latest."""
    strategy = options.choice("startingOffsetsByTimestampStrategy", "error", ["error", "latest"])
    default = "earliest" if is_batch else "latest"
    chosen = _parse(options, STARTING_OPTIONS[:3], default, or_latest=strategy == "latest")
    if is_batch and (chosen.everywhere == LATEST or LATEST in chosen.offsets.values()):
        remedy = "a batch that starts at the end is empty: start elsewhere, or read a stream"
        raise OptionError(chosen.option, options.text(chosen.option), remedy)
    return chosen


def ending(options: Options) -> ChosenPositions:
    """Where a batch ends; by default at the latest record when it is planned."""
    chosen = _parse(options, ENDING_OPTIONS, "latest", or_latest=True)
    if chosen.everywhere == EARLIEST or EARLIEST in chosen.offsets.values():
        remedy = "a batch that ends at the earliest record is empty: end elsewhere"
        raise OptionError(chosen.option, options.text(chosen.option), remedy)
    return chosen


def check_order(start: ChosenPositions, end: ChosenPositions) -> None:
    """Raise :class:`OptionError` if an end offset lies before its start offset."""
    for partition, first in sorted(start.offsets.items()):
        last = end.offsets.get(partition, LATEST)
        if 0 <= last < first:
            remedy = (
                f"{_listed([partition])} would end at offset {last}, before its start {first}:"
                f" check {start.option}"
            )
            raise OptionError(end.option, None, remedy)


def refuse_ending(options: Options) -> None:
    """Raise :class:`OptionError` for ending options, which streams do not have."""
    for name in options.among(ENDING_OPTIONS):
        remedy = "streams do not end: read a batch, or use the trigger availableNow"
        raise OptionError(name, options.text(name), remedy)


def _parse(
    options: Options, names: tuple[str, ...], default: str, *, or_latest: bool
) -> ChosenPositions:
    """The first given option counts, as with Spark's Kafka connector."""
    timestamp, by_timestamp, offsets = names
    if (time := options.maybe_integer(timestamp)) is not None:
        return ChosenPositions(timestamp, everywhere=time, or_latest=or_latest)
    if (text := options.text(by_timestamp)) is not None:
        times = _parse_json(by_timestamp, text, minimum=0)
        return ChosenPositions(by_timestamp, times=times, or_latest=or_latest)
    text = (options.text(offsets) or default).strip()
    if text.lower() in _WORDS:
        return ChosenPositions(offsets, everywhere=_WORDS[text.lower()])
    return ChosenPositions(offsets, offsets=_parse_json(offsets, text, minimum=EARLIEST))


def _parse_json(option: str, text: str, *, minimum: int) -> dict[TopicPartition, int]:
    what = "offset" if minimum < 0 else "milliseconds since the Unix epoch"
    words = "earliest, latest or " if minimum < 0 else ""
    remedy = f'give {words}{{"topic": {{"0": {what}, ...}}, ...}} with numbers from {minimum} on'
    try:
        parsed = json.loads(text)
        found = {
            TopicPartition(topic, int(index)): _number(number, minimum)
            for topic, numbers in parsed.items()
            for index, number in numbers.items()
        }
    except (ValueError, TypeError, AttributeError):
        raise OptionError(option, text, remedy) from None
    if not found:
        raise OptionError(option, text, remedy)
    return found


def _number(value: Any, minimum: int) -> int:
    number = int(value)
    if isinstance(value, bool | float) or number < minimum:
        raise ValueError(value)
    return number


def _listed(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{topic}-{index}" for topic, index in sorted(partitions))

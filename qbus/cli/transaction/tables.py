"""Documents and tables of transactions."""

import time
from typing import TYPE_CHECKING, Any

from qbus.cli.output import Document, Remark, table
from qbus.cli.units import counted, format_moment, format_seconds

if TYPE_CHECKING:
    from rich.console import RenderableType

    from qbus.clients import HangingTransaction, TransactionDescription, TransactionListing


def listing(found: "TransactionListing") -> Document:
    """A transactional id in a list."""
    return {
        "transactional_id": found.transactional_id,
        "coordinator": found.coordinator,
        "producer_id": found.producer_id,
        "state": found.state,
    }


def description(found: "TransactionDescription") -> Document:
    """A transactional id with its transaction."""
    started = found.start_time
    return {
        "transactional_id": found.transactional_id,
        "coordinator": found.coordinator,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "state": found.state,
        "timeout_ms": found.timeout_ms,
        "start_time": started,
        "age_ms": None if started is None else max(int(time.time() * 1000) - started, 0),
        "partitions": [
            {"topic": topic, "partition": partition} for topic, partition in found.partitions
        ],
    }


def hanging(found: "HangingTransaction") -> Document:
    """A transaction that hangs in a partition."""
    return {
        "topic": found.topic,
        "partition": found.partition,
        "start_offset": found.start_offset,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "coordinator_epoch": found.coordinator_epoch,
        "last_timestamp": found.last_timestamp,
    }


def transaction_list(found: list[dict[str, Any]]) -> "RenderableType":
    """One line for each transactional id."""
    if not found:
        return Remark("No transactions: a producer with a transactional_id makes one.")
    return table(
        "transactional id",
        "#coordinator",
        "#producer id",
        "state",
        rows=(
            (one["transactional_id"], one["coordinator"], one["producer_id"], one["state"])
            for one in found
        ),
    )


def transaction_descriptions(found: list[dict[str, Any]]) -> "RenderableType":
    """A headline for each transactional id, then the partitions of its transaction."""
    from rich.console import Group

    parts: list[RenderableType] = []
    for one in found:
        if parts:
            parts.append("")
        parts += [_headline(one), _producer(one)]
        if one["partitions"]:
            rows = ((part["topic"], part["partition"]) for part in one["partitions"])
            parts.append(table("topic", "#partition", rows=rows))
    return Group(*parts)


def _headline(one: dict[str, Any]) -> "RenderableType":
    from rich.text import Text

    line = Text.assemble((one["transactional_id"], "bold"), f"  {one['state']}")
    if one["age_ms"] is not None:
        line.append(f" for {format_seconds(one['age_ms'] / 1000)}")
    line.append(f", {counted(len(one['partitions']), 'partition')}")
    return line


def _producer(one: dict[str, Any]) -> str:
    return (
        f"producer {one['producer_id']}, epoch {one['producer_epoch']},"
        f" time-out {format_seconds(one['timeout_ms'] / 1000)}, coordinator {one['coordinator']}"
    )


def hanging_list(found: list[dict[str, Any]]) -> "RenderableType":
    """One line for each hanging transaction."""
    if not found:
        return Remark("No transaction hangs.")
    return table(
        "topic",
        "#partition",
        "#start offset",
        "#producer id",
        "#epoch",
        "last record",
        rows=(
            (
                one["topic"],
                one["partition"],
                one["start_offset"],
                one["producer_id"],
                one["producer_epoch"],
                format_moment(one["last_timestamp"]),
            )
            for one in found
        ),
    )


def aborted(found: list[dict[str, Any]]) -> str:
    """One line for each transaction that was aborted."""
    return "\n".join(
        f"Aborted the transaction of {one['transactional_id']}, if one was open."
        if "transactional_id" in one
        else f"Aborted the transaction of producer {one['producer_id']} in"
        f" {one['topic']}-{one['partition']} from offset {one['start_offset']} on."
        for one in found
    )

"""Entries of a log as text: one line for each, with its problems below it."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from qbus.cli.units import format_moment

_PLURALS = {
    "batch": ("batch", "batches"),
    "damage": ("damaged range", "damaged ranges"),
    "offset": ("entry", "entries"),
    "time": ("entry", "entries"),
    "boundary": ("boundary", "boundaries"),
    "aborted transaction": ("aborted transaction", "aborted transactions"),
    "ended transaction": ("ended transaction", "ended transactions"),
    "held back": ("state", "states"),
    "queue": ("queue", "queues"),
    "producer": ("producer's batch", "producers' batches"),
    "epoch": ("epoch", "epochs"),
    "checkpoint": ("partition", "partitions"),
    "topic": ("topic", "topics"),
    "manifest": ("manifest", "manifests"),
    "segment": ("segment", "segments"),
}


def heading(path: Path) -> str:
    """Return the line above a file's entries."""
    return click.style(str(path), bold=True)


def line(entry: Mapping[str, Any]) -> str:
    """Return the lines of an entry, its records and its problems."""
    lines = ["  " + _LINES[entry["type"]](entry)]
    lines += [f"    {_record(record)}" for record in entry.get("records", ())]
    lines += [f"    {_control(control)}" for control in entry.get("controls", ())]
    lines += [
        click.style(f"    ! {problem['kind']}: {problem['message']}", fg="red")
        for problem in entry["problems"]
    ]
    return "\n".join(lines)


def summary(kinds: Mapping[str, int], problems: int) -> str:
    """Return the line below a file's entries."""
    counts = ", ".join(
        f"{count:,} {_PLURALS[kind][count != 1]}" for kind, count in kinds.items() if kind != "file"
    )
    if problems:
        what = click.style(f"{problems} problem{'s' * (problems != 1)}", fg="red", bold=True)
    else:
        what = "no problems"
    return f"  {counts or 'empty'}: {what}"


def _batch(entry: Mapping[str, Any]) -> str:
    parts = [
        f"at {entry['position']:<10} offsets {entry['base_offset']}-{entry['last_offset']}",
        f"{entry['records_count']} records",
        f"{entry['size']} bytes",
        f"compression {entry['compression'] or '?'}",
        f"{entry['timestamp_type'].replace('_', ' ')} {format_moment(entry['max_timestamp'])}",
        f"leader epoch {entry['leader_epoch']}",
    ]
    if entry["producer_id"] >= 0:
        parts.append(
            f"producer {entry['producer_id']} epoch {entry['producer_epoch']}"
            f" sequences {entry['base_sequence']}-{entry['last_sequence']}"
        )
    if entry["delete_horizon"] is not None:
        parts.append(f"delete horizon {format_moment(entry['delete_horizon'])}")
    parts += [flag for flag in ("transactional", "control", "hidden", "delayed") if entry[flag]]
    return ", ".join(parts)


def _record(record: Mapping[str, Any]) -> str:
    parts = [f"{record['offset']}: {format_moment(record['timestamp'])}"]
    if record["key"] is not None:
        parts.append(f"key {_text(record, 'key')}")
    parts += [f"header {header['key']}={_text(header, 'value')}" for header in record["headers"]]
    parts.append(_text(record, "value"))
    return " ".join(parts)


def _control(control: Mapping[str, Any]) -> str:
    """A sentence about a control record."""
    what = control["type"]
    if what in _CONTROLS:
        return f"{control['offset']}: {_CONTROLS[what](control)}"
    if what == "carried":
        record = control["record"]
        return (
            f"{control['offset']}: carried from {control['from_offset']}, given offset"
            f" {control['original_offset']}, due {format_moment(control['due'])}:"
            f" {'(nothing)' if record is None else _record(record)}"
        )
    if what == "shared":
        changes = ", ".join(map(_change, control["changes"]))
        return f"{control['offset']}: group {control['group']}: {changes or 'nothing'}"
    if what == "result":
        return (
            f"{control['offset']}: group {control['group']}: {control['size']:,} bytes came of"
            f" {control['of']}"
        )
    entries = ", ".join(
        f"{entry['offset']} due {format_moment(entry['due'])}" for entry in control["entries"]
    )
    text = f"{control['offset']}: {what} {entries or 'nothing'}"
    if what == "delivered":
        count, crc = control["records_count"], control["crc"]
        return f"{text}; if the next batch has {count} records and CRC {crc}"
    return f"{text}; due {format_moment(control['due'])} now" if what == "rescheduled" else text


def _change(change: Mapping[str, Any]) -> str:
    """What a share group did with some records."""
    kind, first, last = change["kind"], change["first"], change["last"]
    text = f"{kind} {first}" if first == last else f"{kind} {first}-{last}"
    if kind != "returned":
        return text
    text += (
        f" after {change['deliveries']} deliveries, {change['nacks']} refused and"
        f" {change['timeouts']} timed out"
    )
    if change["rejected"]:
        return text + ", rejected"
    return text + (f", until {format_moment(change['not_before'])}" if change["not_before"] else "")


def _held_back(entry: Mapping[str, Any]) -> str:
    text = f"{entry['pending']:,} records held back"
    if entry["next_due"] is not None:
        text += f", the next due {format_moment(entry['next_due'])}"
    return f"{text}, none before offset {entry['bound']}, {entry['rescheduled']:,} rescheduled"


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields[name]
    if value is None:
        return "(null)"
    if f"{name}_encoding" in fields:
        return f"base64:{value}"
    return "".join(
        character if character.isprintable() else repr(character)[1:-1] for character in value
    )


def _marker(control: Mapping[str, Any]) -> str:
    return f"{control['type']} of a transaction, coordinator epoch {control['coordinator_epoch']}"


_CONTROLS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "abort": _marker,
    "bound": lambda c: f"no record before offset {c['bound']} is held back",
    "commit": _marker,
}

_LINES: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "batch": _batch,
    "damage": lambda e: f"at {e['position']:<10} {e['size']} bytes that are not a batch",
    "file": lambda e: f"{e['size']} bytes in total",
    "reserved": lambda e: f"room for {e['entries']:,} more entries",
    "offset": lambda e: f"offset {e['offset']} at {e['position']}",
    "time": lambda e: f"{format_moment(e['timestamp'])} up to offset {e['offset']}",
    "boundary": lambda e: (
        f"{'hidden' if e['hidden'] else 'visible'} from offset {e['offset']} at {e['position']}"
    ),
    "aborted transaction": lambda e: (
        f"producer {e['producer_id']} aborted offsets {e['first_offset']}-{e['last_offset']},"
        f" last stable offset {e['stable_offset']} then"
    ),
    "ended transaction": lambda e: (
        f"a transaction of offsets {e['first_offset']}-{e['last_offset']} has ended"
    ),
    "held back": _held_back,
    "queue": lambda e: (
        f"group {e['group']} from offset {e['start']}, {e['done']:,} done behind it,"
        f" {e['returned']:,} returned"
    ),
    "producer": lambda e: (
        f"producer {e['producer_id']} epoch {e['producer_epoch']}"
        f" sequences {e['first_sequence']}-{e['last_sequence']}"
        f" last offset {e['last_offset']} {format_moment(e['timestamp'])}"
    ),
    "manifest": lambda e: (
        f"topic {e['topic_id']} from offset {e['log_start_offset']},"
        f" recovery point {e['recovery_point']},"
        f" {len(e['snapshots'])} + {len(e['control_snapshots'])} snapshots"
    ),
    "segment": lambda e: (
        f"segment {e['base_offset']}: {e['log_size']} bytes, indexes of {e['offsets_size']},"
        f" {e['times_size']}, {e['controls_size']} and {e['aborted_size']} bytes"
    ),
    "epoch": lambda e: f"leader epoch {e['leader_epoch']} from offset {e['start_offset']}",
    "checkpoint": lambda e: f"{e['topic']}-{e['partition']} offset {e['offset']}",
    "topic": lambda e: f"topic id {e['topic_id']}",
}

"""Tables of consumer groups."""

import re
from typing import TYPE_CHECKING, Any

from qbus.cli.output import Remark, table
from qbus.cli.units import counted

if TYPE_CHECKING:
    from rich.console import RenderableType


def group_list(groups: list[dict[str, Any]]) -> "RenderableType":
    """One line for each group."""
    if not groups:
        return Remark("No groups yet: 'qbus consume TOPIC --group NAME' makes one.")
    return table(
        "group",
        "state",
        "protocol type",
        rows=((g["group"], g["state"], g["protocol_type"] or None) for g in groups),
    )


def group_descriptions(groups: list[dict[str, Any]]) -> "RenderableType":
    """A table of offsets with their lag for each group, then one of its members."""
    from rich.console import Group

    parts: list[RenderableType] = []
    for group in groups:
        if parts:
            parts.append("")
        parts.append(_headline(group))
        if group["offsets"]:
            show = _share_offsets if group["type"] == "share" else _offsets
            parts.append(show(group["offsets"]))
        if group["members"]:
            parts += ["", _members(group["members"])]
    return Group(*parts)


def _headline(group: dict[str, Any]) -> "RenderableType":
    from rich.text import Text

    lag = sum(offset["lag"] or 0 for offset in group["offsets"])
    line = Text.assemble(
        (group["group"], "bold"),
        f"  {group['state']}, {counted(len(group['members']), 'member')}, lag {lag:,}",
    )
    unknown = sum(offset["lag"] is None for offset in group["offsets"])
    if unknown:
        line.append(f" without {counted(unknown, 'partition')} that cannot be read")
    uncommitted = sum(_is_uncommitted(offset) for offset in group["offsets"])
    if uncommitted and group["type"] != "share":
        line.append(f" (all of the log of {counted(uncommitted, 'partition')} without a commit)")
    if group["protocol"]:
        line.append(f", assignor {group['protocol']}")
    if group["epoch"] is not None:
        line.append(f" of the broker, epoch {group['epoch']}")
    moving = sum(not member["reconciled"] for member in group["members"])
    if moving:
        line.append(f", {counted(moving, 'member')} not where they are to be yet")
    return line


def _offsets(offsets: list[dict[str, Any]]) -> "RenderableType":
    return table(
        "topic",
        "#partition",
        "#committed",
        "#end",
        "#lag",
        "member",
        rows=(
            (
                offset["topic"],
                offset["partition"],
                offset["committed"],
                offset["end_offset"],
                f"{offset['lag']:,} (all)" if _is_uncommitted(offset) else offset["lag"],
                _shortened(offset["member_id"]),
            )
            for offset in offsets
        ),
    )


def _share_offsets(offsets: list[dict[str, Any]]) -> "RenderableType":
    return table(
        "topic",
        "#partition",
        "#start",
        "#end",
        "#lag",
        rows=(
            (one["topic"], one["partition"], one["committed"], one["end_offset"], one["lag"])
            for one in offsets
        ),
    )


#: The random part of a member's id, of which eight digits tell members apart.
_UUID = re.compile(r"([0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$")


def _shortened(member_id: str | None) -> str | None:
    return None if member_id is None else _UUID.sub(r"\1…", member_id)


def _is_uncommitted(offset: dict[str, Any]) -> bool:
    return offset["committed"] is None and offset["lag"] is not None


def _members(members: list[dict[str, Any]]) -> "RenderableType":
    rows = (
        (
            m["member_id"] if m["member_id"].startswith(m["client_id"]) else _named(m),
            m["host"],
            len(m["partitions"]),
        )
        for m in members
    )
    return table("member", "host", "#partitions", rows=rows)


def _named(member: dict[str, Any]) -> str:
    return f"{member['member_id']} ({member['client_id']})"


def reset(document: dict[str, Any]) -> "RenderableType":
    """One line for each partition: its old and its new offset."""
    from rich.console import Group

    verb = "continues at" if document["applied"] else "would continue at"
    return Group(
        f"Group {document['group']} {verb} these offsets:",
        table(
            "topic",
            "#partition",
            "#from",
            "#to",
            rows=((c["topic"], c["partition"], c["from"], c["to"]) for c in document["changes"]),
        ),
    )

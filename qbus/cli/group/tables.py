"""Tables of consumer groups."""

from typing import TYPE_CHECKING, Any

from qbus.cli.output import table
from qbus.cli.units import counted

if TYPE_CHECKING:
    from rich.console import RenderableType


def group_list(groups: list[dict[str, Any]]) -> "RenderableType":
    """One line for each group."""
    if not groups:
        return "No groups yet: 'qbus consume TOPIC --group NAME' makes one."
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
            parts.append(_offsets(group["offsets"]))
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
    if uncommitted:
        line.append(f" (all of the log of {counted(uncommitted, 'partition')} without a commit)")
    if group["protocol"]:
        line.append(f", assignor {group['protocol']}")
    return line


def _offsets(offsets: list[dict[str, Any]]) -> "RenderableType":
    return table(
        "topic",
        "#partition",
        "#committed",
        "#end offset",
        "#lag",
        "member",
        rows=(
            (
                offset["topic"],
                offset["partition"],
                offset["committed"],
                offset["end_offset"],
                f"{offset['lag']:,} (all)" if _is_uncommitted(offset) else offset["lag"],
                offset["member_id"],
            )
            for offset in offsets
        ),
    )


def _is_uncommitted(offset: dict[str, Any]) -> bool:
    return offset["committed"] is None and offset["lag"] is not None


def _members(members: list[dict[str, Any]]) -> "RenderableType":
    return table(
        "member",
        "client",
        "host",
        "#partitions",
        rows=((m["member_id"], m["client_id"], m["host"], len(m["partitions"])) for m in members),
    )


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

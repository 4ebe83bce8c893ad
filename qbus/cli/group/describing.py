"""Descriptions of groups, gathered from several requests."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from qbus.cli.documents import group_description
from qbus.cli.failures import describe
from qbus.cli.output import Document
from qbus.clients.types import GroupOffset, OffsetAndMetadata, TopicPartition
from qbus.errors import ApiError

if TYPE_CHECKING:
    from qbus.clients import Admin


async def describe_groups(admin: "Admin", names: Sequence[str]) -> list[Document]:
    """Describe the groups called ``names``, or every group if there are no names.

    A partition that a member has without a committed offset is described, too.
    """
    documents = []
    for name in names or [found.group for found in await admin.list_groups()]:
        described = await admin.describe_group(name)
        assigned = [partition for member in described.members for partition in member.assignment]
        if described.type == "share":
            offsets = await admin.share_group_offsets(name)
        else:
            offsets = await _offsets(admin, name, assigned)
        documents.append(group_description(described, offsets))
    return documents


async def _offsets(
    admin: "Admin", group: str, assigned: Sequence[TopicPartition]
) -> list[GroupOffset]:
    """The group's offsets; without the ends of the log where no partition can be read."""
    try:
        return await admin.group_offsets(group, assigned)
    except ApiError as error:
        committed = await admin.committed_offsets(group)
        nothing = dict.fromkeys(assigned, OffsetAndMetadata(-1))
        return [
            GroupOffset(*place, at.offset, at.metadata, -1, -1, describe(error))
            for place, at in sorted((nothing | committed).items())
        ]


def incomplete(groups: Sequence[Document]) -> str:
    """Say of which partitions the lag is not known; empty: of none."""
    unread = [
        f"{offset['topic']}-{offset['partition']}: {offset['unread']}"
        for group in groups
        for offset in group["offsets"]
        if offset["unread"]
    ]
    more = f" (and {len(unread) - 1} more)" if len(unread) > 1 else ""
    return f"{unread[0]}{more}" if unread else ""

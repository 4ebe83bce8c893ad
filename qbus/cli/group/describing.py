"""Descriptions of groups, gathered from several requests."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from qbus.cli.documents import group_description
from qbus.cli.output import Document

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
        offsets = await admin.group_offsets(name, assigned)
        documents.append(group_description(described, offsets))
    return documents

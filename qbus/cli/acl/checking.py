"""The rules of a cluster, as something that decides like its brokers."""

from typing import TYPE_CHECKING

from qbus.cli.failures import describe
from qbus.cli.output import note
from qbus.clients.types import ConfigKind
from qbus.errors import ApiError
from qbus.security.acls import AclIndex, Filter, index_of

if TYPE_CHECKING:
    from qbus.clients import Admin

_SUPER_USERS = "super.users"
_BROKERS = "sasl.inter.broker.username"
_WITHOUT_RULES = "allow.everyone.if.no.acl.found"


async def read_index(admin: "Admin") -> AclIndex:
    """Read all rules, and what a broker's settings add to them, as far as those may be read."""
    found = await admin.describe_acls(Filter())
    about = await admin.describe_cluster()
    try:
        entries = await admin.describe_config(ConfigKind.BROKER, str(about.nodes[0].id))
    except (ApiError, IndexError) as error:
        entries = []
        reason = describe(error) if isinstance(error, ApiError) else "the cluster names no broker"
        note(
            f"Decided by the rules alone: {_SUPER_USERS} and {_WITHOUT_RULES} of the brokers could"
            f" not be read: {reason}"
        )
    settings = {entry.name: entry.value for entry in entries}
    supers = [name.strip() for name in (settings.get(_SUPER_USERS) or "").split(";")]
    if settings.get(_BROKERS):
        supers.append(f"User:{settings[_BROKERS]}")
    return index_of(
        found,
        filter(None, supers),
        allows_without_rules=settings.get(_WITHOUT_RULES) == "true",
    )

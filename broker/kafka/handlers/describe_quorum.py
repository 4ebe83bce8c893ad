"""DescribeQuorum (key 55): refused, as Kafka refuses it on ZooKeeper.

There is no quorum of controllers: metadata lies in ZooKeeper, or with one broker. ApiVersions does
not report this API, so clients do not ask; those that ask all the same learn why not.
"""

from typing import TYPE_CHECKING, NoReturn

from qbus.errors import ApiError, ErrorCode
from qbus.wire.messages.describe_quorum import DescribeQuorumRequest

from ..context import RequestContext

if TYPE_CHECKING:
    from ...broker import Broker


def handle(
    _broker: "Broker", _context: RequestContext, _request: DescribeQuorumRequest
) -> NoReturn:
    """Refuse.

    Raises:
        ApiError: UNSUPPORTED_VERSION.
    """
    raise ApiError(
        ErrorCode.UNSUPPORTED_VERSION, "the cluster keeps its metadata without a KRaft quorum"
    )

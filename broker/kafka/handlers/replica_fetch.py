"""Fetch as a follower asks: in a session, up to the log's end, and telling what it has.

From version 15 on a follower says under which registration it asks (KIP-903); one that says less is
not answered as a follower. What it asks for, it has, on stable storage where the topic wants that:
so the high watermark moves on, and it may come in sync.
"""

from asyncio import Future
from typing import TYPE_CHECKING

from qbus.errors import ApiError
from qbus.wire.messages.fetch import FetchRequest, FetchResponse

from ..replica_fetch import ReplicaFetch
from ..replica_sessions import NEW_EPOCH, NO_SESSION
from .leaders import name_leaders

if TYPE_CHECKING:
    from ...broker import Broker


def handle_replica(
    broker: "Broker", version: int, request: FetchRequest
) -> FetchResponse | Future[FetchResponse]:
    """Note what the follower has; answer what is new, or wait for it."""
    replicas = broker.replicas
    now = broker.clock.monotonic()
    try:
        session = replicas.sessions.session_for(request, now)
    except ApiError as error:
        return FetchResponse(error_code=error.code)
    for partition in session.take(request, now):
        replicas.isr_changes.consider(partition, session.replica_id)
    delayed = ReplicaFetch(
        replicas.purgatory,
        replicas.readers,
        session,
        min(request.max_bytes, replicas.fetch_max_bytes),
        lambda response: name_leaders(broker.metadata, response, version),
    )
    is_new = request.session_epoch == NEW_EPOCH  # the follower wants to know its session's id
    delayed.begin(request.min_bytes, 0.0 if is_new else request.max_wait_ms / 1000)
    if session.session_id == NO_SESSION:
        delayed.add_done_callback(lambda _: session.close())
    return delayed

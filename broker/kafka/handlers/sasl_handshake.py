"""SaslHandshake (key 17): a client chooses how it shows who it is (KIP-43, KIP-368).

A mechanism that the listener does not accept is answered with UNSUPPORTED_SASL_MECHANISM and those
that it does, and the connection is closed. On a listener without SASL, in the middle of an
exchange, and sooner than a second after the last re-authentication it is ILLEGAL_SASL_STATE.
"""

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from qbus.errors import ErrorCode
from qbus.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

from ...authentication import Choice
from ..context import RequestContext

if TYPE_CHECKING:
    from ...broker import Broker

_FIRST_WITH_HEADERS = 1

_ERRORS = {
    Choice.TAKEN: ErrorCode.NONE,
    Choice.UNKNOWN: ErrorCode.UNSUPPORTED_SASL_MECHANISM,
    Choice.OUT_OF_TURN: ErrorCode.ILLEGAL_SASL_STATE,
    Choice.TOO_SOON: ErrorCode.ILLEGAL_SASL_STATE,
}


def handle(
    broker: "Broker", context: RequestContext, request: SaslHandshakeRequest
) -> SaslHandshakeResponse | Awaitable[SaslHandshakeResponse]:
    """Take the choice, or refuse it."""
    authentication, peer = broker.authentication, context.peer
    has_headers = context.api_version >= _FIRST_WITH_HEADERS
    choice = authentication.choose(peer, request.mechanism, has_headers=has_headers)
    mechanisms = list(authentication.mechanisms(peer)) if peer.listener.protocol.is_sasl else []
    response = SaslHandshakeResponse(error_code=_ERRORS[choice], mechanisms=mechanisms)
    if choice in {Choice.TAKEN, Choice.TOO_SOON}:
        return response
    return _refuse(broker, context, response)


async def _refuse(
    broker: "Broker", context: RequestContext, response: SaslHandshakeResponse
) -> SaslHandshakeResponse:
    code = ErrorCode(response.error_code)
    await broker.authentication.wait_after_failure(context.peer, f"refused with {code.name}")
    return response

"""SaslAuthenticate (API 36): one message of a SASL mechanism each way (KIP-152).

Version 1 tells how long the session lasts (KIP-368); version 2 is flexible.
"""

from qbus.wire.declare import Bytes, Int16, Int64, String, Struct, field


class SaslAuthenticateRequest(Struct, flexible="2+"):
    auth_bytes: Bytes = field()

    def __repr__(self) -> str:  # it may hold a password
        return f"SaslAuthenticateRequest({len(self.auth_bytes)} bytes)"


class SaslAuthenticateResponse(Struct, flexible="2+"):
    error_code: Int16 = field()
    error_message: String | None = field(default=None)
    auth_bytes: Bytes = field()
    session_lifetime_ms: Int64 = field("1+")

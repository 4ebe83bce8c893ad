"""SaslHandshake (API 17): choose a SASL mechanism (KIP-43).

After version 0 the mechanism's messages follow as frames without headers, after version 1 as
SaslAuthenticate requests (KIP-152).
"""

from qbus.wire.declare import Int16, String, Struct, field


class SaslHandshakeRequest(Struct):
    mechanism: String = field()


class SaslHandshakeResponse(Struct):
    error_code: Int16 = field()
    mechanisms: list[String] = field()

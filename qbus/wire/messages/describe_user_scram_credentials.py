"""DescribeUserScramCredentials (API 50): who can log in by SCRAM, never with what (KIP-554)."""

from qbus.wire.declare import Int8, Int16, Int32, String, Struct, field


class UserName(Struct):
    name: String = field()


class DescribeUserScramCredentialsRequest(Struct, flexible="0+"):
    users: list[UserName] | None = field()


class CredentialInfo(Struct):
    mechanism: Int8 = field()
    iterations: Int32 = field()


class DescribeUserScramCredentialsResult(Struct):
    user: String = field()
    error_code: Int16 = field()
    error_message: String | None = field(default=None)
    credential_infos: list[CredentialInfo] = field()


class DescribeUserScramCredentialsResponse(Struct, flexible="0+"):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    error_message: String | None = field(default=None)
    results: list[DescribeUserScramCredentialsResult] = field()

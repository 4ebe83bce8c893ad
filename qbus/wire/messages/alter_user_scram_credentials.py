"""AlterUserScramCredentials (API 51): set and remove what users log in with by SCRAM (KIP-554)."""

from qbus.wire.declare import Bytes, Int8, Int16, Int32, String, Struct, field


class ScramCredentialDeletion(Struct):
    name: String = field()
    mechanism: Int8 = field()


class ScramCredentialUpsertion(Struct):
    name: String = field()
    mechanism: Int8 = field()
    iterations: Int32 = field()
    salt: Bytes = field()
    salted_password: Bytes = field()

    def __repr__(self) -> str:  # whoever has a salted password can log in with it
        return f"ScramCredentialUpsertion(name={self.name!r}, mechanism={self.mechanism})"


class AlterUserScramCredentialsRequest(Struct, flexible="0+"):
    deletions: list[ScramCredentialDeletion] = field()
    upsertions: list[ScramCredentialUpsertion] = field()


class AlterUserScramCredentialsResult(Struct):
    user: String = field()
    error_code: Int16 = field()
    error_message: String | None = field(default=None)


class AlterUserScramCredentialsResponse(Struct, flexible="0+"):
    throttle_time_ms: Int32 = field()
    results: list[AlterUserScramCredentialsResult] = field()

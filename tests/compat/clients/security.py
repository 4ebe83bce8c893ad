"""How a client proves who it is over TLS, in the words of each client."""

import json
import os
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

#: A driver's program in another language finds what is to be set in this variable, as JSON.
VARIABLE: Final = "QBUS_COMPAT_SECURITY"
_TOKEN_SECONDS: Final = 3600


@dataclass(frozen=True)
class Security:
    """A user over TLS, by a SASL mechanism or, without one, by a certificate."""

    ca: Path
    mechanism: str | None = None
    user: str = ""
    password: str = field(default="", repr=False)
    token: Path | None = None  # file with the bearer token
    certificate: Path | None = None
    key: Path | None = None

    @property
    def protocol(self) -> str:
        """Kafka's ``security.protocol``."""
        return "SASL_SSL" if self.mechanism else "SSL"

    def librdkafka(self) -> dict[str, Any]:
        """Settings of librdkafka and of those built on it."""
        found: dict[str, Any] = {
            "security.protocol": self.protocol,
            "ssl.ca.location": str(self.ca),
        }
        if self.certificate is not None:
            found["ssl.certificate.location"] = str(self.certificate)
            found["ssl.key.location"] = str(self.key)
        if self.mechanism:
            found["sasl.mechanism"] = self.mechanism
        if self.mechanism == "OAUTHBEARER":
            found["oauth_cb"] = lambda _: (self._read_token(), time.time() + _TOKEN_SECONDS)
        elif self.mechanism:
            found |= {"sasl.username": self.user, "sasl.password": self.password}
        return found

    def kafka_python(self) -> dict[str, Any]:
        """Settings of kafka-python."""
        from kafka.net.sasl.oauth import AbstractTokenProvider

        read = self._read_token

        class Provider(AbstractTokenProvider):  # type: ignore[misc]
            def token(self) -> str:
                return read()

        return self._in_python() | (
            {"sasl_oauth_token_provider": Provider()} if self.mechanism == "OAUTHBEARER" else {}
        )

    def aiokafka(self) -> dict[str, Any]:
        """Settings of aiokafka; call it in a running loop."""
        from aiokafka.abc import AbstractTokenProvider

        read = self._read_token

        class Provider(AbstractTokenProvider):  # type: ignore[misc]
            async def token(self) -> str:
                return read()

        return self._in_python() | (
            {"sasl_oauth_token_provider": Provider()} if self.mechanism == "OAUTHBEARER" else {}
        )

    def java(self) -> dict[str, str]:
        """Properties of Kafka's Java clients and tools."""
        found = {
            "security.protocol": self.protocol,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca),
        }
        if self.certificate is not None:
            found |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self._keystore())}
        if self.mechanism:
            found |= {"sasl.mechanism": self.mechanism, "sasl.jaas.config": self._jaas()}
        if self.mechanism == "OAUTHBEARER":
            handler = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
            found |= {
                "sasl.login.callback.handler.class": handler,
                "sasl.oauthbearer.token.endpoint.url": f"file://{self.token}",
            }
        return found

    def java_options(self) -> list[str]:
        """What the virtual machine is told."""
        if self.mechanism != "OAUTHBEARER":
            return []
        return [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=file://{self.token}"]

    def environment(self, settings: Mapping[str, object] | None = None) -> dict[str, str]:
        """The environment of a program in another language, which reads what it needs of it."""
        plain = {
            "ca": str(self.ca),
            "mechanism": self.mechanism or "",
            "user": self.user,
            "password": self.password,
            "token": self._read_token() if self.token else "",
            "certificate": str(self.certificate or ""),
            "key": str(self.key or ""),
        }
        return {**os.environ, VARIABLE: json.dumps(plain if settings is None else settings)}

    def _in_python(self) -> dict[str, Any]:
        context = ssl.create_default_context(cafile=str(self.ca))
        if self.certificate is not None:
            context.load_cert_chain(self.certificate, self.key)
        found: dict[str, Any] = {"security_protocol": self.protocol, "ssl_context": context}
        if self.mechanism:
            found["sasl_mechanism"] = self.mechanism
        if self.mechanism and self.mechanism != "OAUTHBEARER":
            found |= {"sasl_plain_username": self.user, "sasl_plain_password": self.password}
        return found

    def _jaas(self) -> str:
        common = "org.apache.kafka.common.security"
        if self.mechanism == "OAUTHBEARER":
            return f"{common}.oauthbearer.OAuthBearerLoginModule required;"
        module = "plain.Plain" if self.mechanism == "PLAIN" else "scram.Scram"
        who = f'username="{self.user}" password="{self.password}"'
        return f"{common}.{module}LoginModule required {who};"

    def _keystore(self) -> Path:
        """Key and certificate in one file, as Java wants them."""
        assert self.certificate is not None
        assert self.key is not None
        path = self.certificate.with_suffix(".keystore.pem")
        path.touch(mode=0o600)
        path.write_bytes(self.key.read_bytes() + self.certificate.read_bytes())
        return path

    def _read_token(self) -> str:
        assert self.token is not None
        return self.token.read_text().strip()

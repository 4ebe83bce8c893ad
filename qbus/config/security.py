"""Broker configuration: encryption, authentication, authorization, quotas and the audit log.

What begins with ``ssl.`` or ``sasl.``, and what else :data:`LISTENER_KEYS` names, can be stated for
one listener alone: ``listener.name.external.ssl.client.auth=required``, with the listener's name in
lower case, as Kafka has it.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from qbus.config.settings import Settings, boolean, double, integer, long, string, strings, unset
from qbus.config.types import ConfigType

_DAY_MS = 86_400_000
_MIB = 1024 * 1024

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
"""The SASL mechanisms, by their registered names."""

_NO_GSSAPI: Final = {"GSSAPI": "GSSAPI (Kerberos) is not supported; use a SCRAM mechanism"}

AUTHORIZERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "": "",
        "none": "none",
        "acl": "acl",
        "kafka.security.authorizer.AclAuthorizer": "acl",
        "org.apache.kafka.metadata.authorizer.StandardAuthorizer": "acl",
    }
)
"""The values of ``authorizer.class.name``, and what each of them means."""


def _some_of_them(mechanisms: tuple[str, ...]) -> None:
    if not mechanisms:
        raise ValueError(f"at least one of {', '.join(MECHANISMS)}")


def _principals(text: str) -> None:
    for one in text.split(";"):
        kind, colon, name = one.strip().partition(":")
        if one.strip() and not (kind and colon and name):
            raise ValueError("principals separated by semicolons, as User:alice;User:bob")


def _mapping_rules(text: str) -> None:
    from qbus.security.principals import PrincipalMapper  # noqa: PLC0415 - most state none

    PrincipalMapper(text)


def _pem(text: object) -> None:
    if str(text).lower().endswith((".jks", ".p12", ".pfx", ".keystore", ".truststore")):
        raise ValueError(
            "a PEM file; convert a Java keystore with: keytool -importkeystore -srckeystore STORE "
            "-destkeystore store.p12 -deststoretype PKCS12, and then: openssl pkcs12 -in store.p12 "
            "-out store.pem -nodes"
        )


def _key_set(url: str) -> None:
    if url and not url.startswith(("https://", "file:/", "http://127.0.0.1:", "http://localhost:")):
        raise ValueError("an address as https://host/path or file:///path")


def _keystore_type(text: str) -> None:
    if text.upper() != "PEM":
        raise ValueError("PEM; docs/security.md says how to convert others")


class TlsKeys(Settings):
    """Certificates, and what is asked of those of clients."""

    __slots__ = ()

    ssl_keystore_location = unset(
        ConfigType.STRING,
        "A PEM file with the private key and the certificate chain of this broker. It is read "
        "again when it changes.",
        static=True,
        check=_pem,
    )
    ssl_keystore_type = string(
        "PEM", "The form of the keystore; it can only be PEM.", static=True, check=_keystore_type
    )
    ssl_certificate_location = unset(
        ConfigType.STRING,
        "A PEM file with the certificate chain of this broker, if ssl.keystore.location does not "
        "hold it; goes with ssl.key.location.",
        static=True,
        check=_pem,
    )
    ssl_key_location = unset(
        ConfigType.STRING,
        "A PEM file with the private key of ssl.certificate.location.",
        static=True,
        check=_pem,
    )
    ssl_key_password = unset(
        ConfigType.PASSWORD, "The password of the private key, if it has one.", static=True
    )
    ssl_truststore_location = unset(
        ConfigType.STRING,
        "A PEM file with the certificates that clients' and other brokers' certificates must be "
        "signed by. Not set: those that the system trusts, for other brokers.",
        static=True,
        check=_pem,
    )
    ssl_crl_location = unset(
        ConfigType.STRING,
        "A PEM file with the lists of certificates that the authorities of clients have revoked "
        "(CRL), one for each authority: clients of an authority without one are refused, and all "
        "are once its list has expired. It is read again when it changes. Not set: nothing is "
        "held for revoked.",
        static=True,
        check=_pem,
    )
    ssl_truststore_type = string(
        "PEM", "The form of the truststore; it can only be PEM.", static=True, check=_keystore_type
    )
    ssl_client_auth = string(
        "none",
        "Whether clients need a certificate: required, requested (they may have one), or none.",
        static=True,
        choices=("none", "requested", "required"),
    )
    ssl_principal_mapping_rules = string(
        "DEFAULT",
        "How the principal follows from a certificate's distinguished name: rules as "
        "RULE:pattern/replacement/LU separated by commas, tried in order; DEFAULT is the name "
        "itself.",
        static=True,
        check=_mapping_rules,
    )
    ssl_enabled_protocols = strings(
        ("TLSv1.2", "TLSv1.3"),
        "The versions of TLS that are spoken.",
        static=True,
        choices=("TLSv1.2", "TLSv1.3"),
        refused={
            "TLSv1": "TLS before 1.2 is broken, and not supported",
            "TLSv1.1": "TLS before 1.2 is broken, and not supported",
            "SSLv3": "SSL is broken, and not supported",
        },
    )
    ssl_cipher_suites = strings(
        (),
        "The cipher suites of TLS 1.2 that are spoken, by their names in OpenSSL or in RFCs. "
        "Empty: those that OpenSSL holds for strong. Those of TLS 1.3 are all strong.",
        static=True,
    )
    ssl_endpoint_identification_algorithm = string(
        "https",
        "Whether a broker checks that the certificate of another one is for its host name: https, "
        "or empty for no check.",
        static=True,
        choices=("https", "none", ""),
    )
    ssl_handshake_timeout_ms = long(
        10_000,
        "A connection whose TLS handshake takes longer is closed.",
        unit="ms",
        at_least=1,
        static=True,
    )
    ssl_max_unfinished_handshakes = integer(
        1000,
        "Maximum number of connections of a listener whose TLS handshakes are not over. Above it, "
        "the one that has waited longest is closed for a new one.",
        at_least=1,
        static=True,
    )


class SaslKeys(Settings):
    """Authentication of clients, and of brokers among themselves."""

    __slots__ = ()

    sasl_enabled_mechanisms = strings(
        ("SCRAM-SHA-256", "SCRAM-SHA-512"),
        "The SASL mechanisms that clients may use.",
        static=True,
        choices=MECHANISMS,
        refused=_NO_GSSAPI,
        check=_some_of_them,
    )
    sasl_mechanism_inter_broker_protocol = string(
        "SCRAM-SHA-256",
        "The SASL mechanism by which brokers authenticate with one another.",
        static=True,
        choices=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
        refused=_NO_GSSAPI,
    )
    sasl_inter_broker_username = unset(
        ConfigType.STRING,
        "The user that brokers are for one another. It is a super user, which each broker knows by "
        "its configuration, and the first administrator.",
        static=True,
    )
    sasl_inter_broker_password = unset(
        ConfigType.PASSWORD, "The password of sasl.inter.broker.username.", static=True
    )
    sasl_server_max_receive_size = integer(
        65_536,
        "Maximum size of a request of a client that has not authenticated.",
        unit="bytes",
        at_least=1024,
        static=True,
    )
    sasl_authentication_timeout_ms = long(
        30_000,
        "A connection whose client has not authenticated for this time is closed.",
        unit="ms",
        at_least=1,
        static=True,
    )
    sasl_max_unauthenticated_connections = integer(
        1000,
        "Maximum number of connections of a listener whose clients have not authenticated, and at "
        "most half of max.connections. Above it, the one that has waited longest is closed for a "
        "new one.",
        at_least=1,
        static=True,
    )
    sasl_oauthbearer_jwks_endpoint_url = string(
        "",
        "Where the keys are that tokens are signed with (JWKS): https://..., or file:///path.",
        static=True,
        check=_key_set,
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms = long(
        10_000,
        "Minimum time between two attempts to read the keys of tokens, also when tokens name keys "
        "that are not known.",
        unit="ms",
        at_least=1,
        static=True,
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms = long(
        3_600_000,
        "How often the keys of tokens are read again.",
        unit="ms",
        at_least=1000,
        static=True,
    )
    sasl_oauthbearer_expected_issuer = string(
        "", "The issuer that tokens must name (iss). Empty: any.", static=True
    )
    sasl_oauthbearer_expected_audience = strings(
        (), "Tokens must be for one of these audiences (aud). Empty: for any.", static=True
    )
    sasl_oauthbearer_clock_skew_seconds = integer(
        30,
        "How far clocks of a token's issuer and of brokers may differ.",
        unit="seconds",
        at_least=0,
        static=True,
    )
    sasl_oauthbearer_sub_claim_name = string(
        "sub", "The claim of a token that names the user.", static=True
    )
    sasl_oauthbearer_scope_claim_name = string(
        "scope", "The claim of a token that has its scopes.", static=True
    )
    sasl_oauthbearer_required_scopes = strings(
        (), "The scopes that tokens must have, all of them.", static=True
    )
    sasl_oauthbearer_algorithms = strings(
        ("RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384", "PS512", "EdDSA"),
        "The algorithms that tokens may be signed with.",
        static=True,
        choices=(
            *("RS256", "RS384", "RS512", "ES256", "ES384", "ES512"),
            *("PS256", "PS384", "PS512", "EdDSA"),
        ),
        refused={
            "none": "a token without a signature proves nothing",
            "HS256": "a shared key proves nothing about the issuer",
            "HS384": "a shared key proves nothing about the issuer",
            "HS512": "a shared key proves nothing about the issuer",
        },
    )
    connections_max_reauth_ms = long(
        0,
        "Clients must authenticate again within this time; 0: only when a token expires.",
        unit="ms",
        at_least=0,
        static=True,
    )
    connection_failed_authentication_delay_ms = integer(
        100,
        "How long a failed authentication waits for its answer.",
        unit="ms",
        at_least=0,
        at_most=60_000,
        static=True,
    )
    connection_failed_authentication_max_per_ip = integer(
        300,
        "Number of failed authentications per minute from one address (of IPv6 from its first 64 "
        "bits). Above, attempts fail unchecked, except those of users who have authenticated from "
        "there before. 0: no limit.",
        at_least=0,
        static=True,
    )
    connection_failed_authentication_max_delay_ms = integer(
        60_000,
        "The longest time for which attempts to authenticate as one user from one address are not "
        "checked, and their connections closed, after ten of them have failed. The time is a "
        "second at first, and doubles with each further failure. Other addresses are not "
        "concerned. 0: no limit.",
        unit="ms",
        at_least=0,
        at_most=3_600_000,
        static=True,
    )


class AuthorizationKeys(Settings):
    """Who may do what, and what is told of it."""

    __slots__ = ()

    authorizer_class_name = string(
        "",
        "Whether ACLs are enforced: acl, none, or a class of Kafka, which means acl. Empty: they "
        "are as soon as a listener authenticates its clients.",
        static=True,
        choices=tuple(AUTHORIZERS),
    )
    super_users = string(
        "",
        "Principals that may do everything, separated by semicolons, as User:alice;User:bob.",
        static=True,
        check=_principals,
    )
    allow_everyone_if_no_acl_found = boolean(
        False, "Whether everyone may use what no ACL is about.", static=True
    )
    allow_insecure = boolean(
        False,
        "Whether a listener that does not authenticate its clients may be reached from other "
        "machines: anyone who reaches it may do everything.",
        static=True,
    )
    qbus_audit_log_path = string(
        "",
        "The file that tells, in lines of JSON, who did what: administration and refusals always, "
        "requests for data by qbus.audit.data.sampling. Empty: none.",
        static=True,
    )
    qbus_audit_log_max_bytes = long(
        64 * _MIB,
        "Size at which the audit log is rotated.",
        unit="bytes",
        at_least=4096,
        static=True,
    )
    qbus_audit_log_files = integer(
        10, "Number of rotated files of the audit log that are kept.", at_least=1, static=True
    )
    qbus_audit_queue_size = integer(
        10_000,
        "How many events may wait to be written to the audit log; more are dropped, and counted.",
        at_least=10,
        static=True,
    )
    qbus_audit_data_sampling = double(
        0.0,
        "The share of allowed requests for data that the audit log tells of.",
        at_least=0,
        at_most=1,
    )

    @property
    def super_user_principals(self) -> frozenset[str]:
        """The principals of ``super.users``."""
        return frozenset(one.strip() for one in self.super_users.split(";") if one.strip())

    def enforces_acls(self, *, authenticates: bool) -> bool:
        """Whether access rules decide; ``authenticates``: whether any listener does."""
        return (AUTHORIZERS[self.authorizer_class_name] or ("none", "acl")[authenticates]) == "acl"


class QuotaKeys(Settings):
    """How quotas are measured; the quotas themselves are in the metadata store."""

    __slots__ = ()

    quota_window_num = integer(
        11,
        "Number of samples that quotas of bytes and time are measured over.",
        at_least=1,
        static=True,
    )
    quota_window_size_seconds = integer(
        1, "The time that one such sample spans.", unit="seconds", at_least=1, static=True
    )
    controller_quota_window_num = integer(
        11,
        "Number of samples that quotas of changes to topics are measured over.",
        at_least=1,
        static=True,
    )
    controller_quota_window_size_seconds = integer(
        1, "The time that one such sample spans.", unit="seconds", at_least=1, static=True
    )
    max_connection_creation_rate = integer(
        2**31 - 1, "Maximum number of new connections in a second.", at_least=0
    )


class SecurityKeys(TlsKeys, SaslKeys, AuthorizationKeys, QuotaKeys):
    """All of security, but for the listeners."""

    __slots__ = ()


LISTENER_KEYS: Final = frozenset(
    {
        *TlsKeys.KEYS,
        *(name for name in SaslKeys.KEYS if name.startswith("sasl.")),
        "connections.max.reauth.ms",
        "max.connections",
        "max.connections.per.ip",
        "max.connection.creation.rate",
    }
)
"""The keys that can be stated for one listener, as ``listener.name.NAME.KEY``."""


def split_listener_key(name: str) -> tuple[str, str] | None:
    """Return listener and key of ``listener.name.NAME.KEY``; None if it is not of that form."""
    if not name.startswith("listener.name."):
        return None
    listener, dot, key = name.removeprefix("listener.name.").partition(".")
    return (listener, key) if listener and dot and key in LISTENER_KEYS else None

"""Contexts for TLS: what they insist on, and certificates that change under a running server."""

import logging
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Self

import pytest

from qbus.errors import ConfigError
from qbus.security import tls
from qbus.security.client import ClientSecurity
from qbus.security.tls import ServerTls, client_context, server_context
from tests.support.certificates import Certificates

SECRET = "letmein-7731"


@dataclass
class Settings:
    """What a server is configured with."""

    ssl_keystore_location: str | None = None
    ssl_certificate_location: str | None = None
    ssl_key_location: str | None = None
    ssl_key_password: str | None = None
    ssl_truststore_location: str | None = None
    ssl_crl_location: str | None = None
    ssl_client_auth: str = "none"
    ssl_enabled_protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    ssl_cipher_suites: tuple[str, ...] = ()


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path / "ca")


@pytest.fixture
def settings(certificates: Certificates) -> Settings:
    return Settings(ssl_keystore_location=str(certificates.server()))


def shake_hands(
    server: ssl.SSLContext, client: ssl.SSLContext, host: str = "localhost"
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """A handshake in memory; the two ends, or what the first of them fails with."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = server.wrap_bio(to_server, to_client, server_side=True)
    theirs = client.wrap_bio(to_client, to_server, server_hostname=host)
    for _ in range(6):
        for end in (theirs, ours):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return ours, theirs


def trusting(certificates: Certificates, own: Path | None = None) -> ClientSecurity:
    return ClientSecurity(
        protocol="SSL",
        ssl_ca_location=str(certificates.ca),
        ssl_certificate_location=None if own is None else str(own),
    )


def test_the_latest_version_is_spoken(settings: Settings, certificates: Certificates) -> None:
    ours, _ = shake_hands(server_context(settings), client_context(trusting(certificates)))
    assert ours.version() == "TLSv1.3"
    assert ours.compression() is None


def test_versions_can_be_chosen(settings: Settings, certificates: Certificates) -> None:
    settings.ssl_enabled_protocols = ("TLSv1.2",)
    settings.ssl_cipher_suites = (
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        "TLS_AES_128_GCM_SHA256",
    )
    ours, _ = shake_hands(server_context(settings), client_context(trusting(certificates)))
    assert ours.version() == "TLSv1.2"
    cipher = ours.cipher()
    assert cipher is not None
    assert cipher[0] == "ECDHE-ECDSA-AES128-GCM-SHA256"


def test_suites_of_1_3_alone_leave_nothing_of_1_2(
    settings: Settings, certificates: Certificates
) -> None:
    settings.ssl_cipher_suites = ("TLS_AES_256_GCM_SHA384",)
    old = client_context(trusting(certificates))
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError, match="UNSUPPORTED_PROTOCOL"):
        shake_hands(server_context(settings), old)
    settings.ssl_enabled_protocols = ("TLSv1.2",)
    with pytest.raises(ConfigError, match=r"suites of TLSv1\.2"):
        server_context(settings)


def test_nothing_older_than_1_2(settings: Settings, certificates: Certificates) -> None:
    old = client_context(trusting(certificates))
    with pytest.warns(DeprecationWarning, match="TLSv1 is deprecated"):
        old.minimum_version = ssl.TLSVersion.TLSv1
    with pytest.warns(DeprecationWarning, match=r"TLSv1_1 is deprecated"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises(ssl.SSLError, match="UNSUPPORTED_PROTOCOL"):
        shake_hands(server_context(settings), old)


def test_certificate_and_key_may_lie_apart(tmp_path: Path, certificates: Certificates) -> None:
    both = certificates.server().read_text()
    at = both.index("-----BEGIN CERTIFICATE")
    (tmp_path / "key.pem").write_text(both[:at])
    (tmp_path / "chain.pem").write_text(both[at:])
    apart = Settings(
        ssl_certificate_location=str(tmp_path / "chain.pem"),
        ssl_key_location=str(tmp_path / "key.pem"),
    )
    shake_hands(server_context(apart), client_context(trusting(certificates)))


def test_a_key_may_have_a_password(certificates: Certificates) -> None:
    path = str(certificates.with_password("locked", SECRET))
    server_context(Settings(ssl_keystore_location=path, ssl_key_password=SECRET))
    for password, why in ((None, "needs ssl.key.password"), ("wrong-one", "password is wrong")):
        with pytest.raises(ConfigError, match=why) as refused:
            server_context(Settings(ssl_keystore_location=path, ssl_key_password=password))
        assert "wrong-one" not in str(refused.value)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"\xfe\xed\xfe\xed\x00\x00\x00\x02", "keytool -importkeystore"),
        (b"\x30\x82\x0a\x00", "openssl pkcs12 -in"),
        (b"-----BEGIN NONSENSE-----\n", "expected a private key and its certificate chain in PEM"),
        (None, "No such file"),
    ],
)
def test_what_is_no_certificate_is_refused(tmp_path: Path, content: bytes | None, why: str) -> None:
    path = tmp_path / "store"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError) as refused:
        server_context(Settings(ssl_keystore_location=str(path)))
    assert str(refused.value).startswith(f"ssl.keystore.location={path}: ")
    assert why in str(refused.value)


def test_a_key_of_another_certificate_is_refused(
    tmp_path: Path, certificates: Certificates
) -> None:
    one, other = certificates.server("one").read_text(), certificates.server("other").read_text()
    at = one.index("-----BEGIN CERTIFICATE")
    (tmp_path / "mixed.pem").write_text(other[: other.index("-----BEGIN CERTIFICATE")] + one[at:])
    with pytest.raises(ConfigError, match="does not belong"):
        server_context(Settings(ssl_keystore_location=str(tmp_path / "mixed.pem")))


def test_suites_that_nobody_knows_are_refused(settings: Settings) -> None:
    settings.ssl_cipher_suites = ("TLS_NULL_WITH_NULL_NULL",)
    with pytest.raises(ConfigError, match=r"ssl\.cipher\.suites=TLS_NULL_WITH_NULL_NULL"):
        server_context(settings)


# Clients


def test_a_client_checks_the_host_name(settings: Settings, certificates: Certificates) -> None:
    server = server_context(settings)
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake_hands(server, client_context(trusting(certificates)), "elsewhere.example")


def test_that_is_given_up_only_with_a_warning(
    settings: Settings, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    unchecked = ClientSecurity(
        protocol="SSL", ssl_ca_location=str(certificates.ca), check_hostname=False
    )
    shake_hands(server_context(settings), client_context(unchecked), "elsewhere.example")
    assert "ssl.endpoint.identification.algorithm=none" in caplog.text


def test_a_client_trusts_no_other_authority(settings: Settings, tmp_path: Path) -> None:
    other = Certificates(tmp_path / "other")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(server_context(settings), client_context(trusting(other)))
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(server_context(settings), client_context(ClientSecurity(protocol="SSL")))


def test_a_client_is_who_its_certificate_says(
    settings: Settings, certificates: Certificates
) -> None:
    settings.ssl_client_auth = "required"
    settings.ssl_truststore_location = str(certificates.ca)
    alice = trusting(certificates, certificates.client("alice"))
    ours, _ = shake_hands(server_context(settings), client_context(alice))
    assert (ours.getpeercert() or {})["subject"] == ((("commonName", "alice"),),)


def test_a_client_without_a_certificate_is_refused_where_it_needs_one(
    settings: Settings, certificates: Certificates
) -> None:
    settings.ssl_client_auth = "required"
    settings.ssl_truststore_location = str(certificates.ca)
    with pytest.raises(ssl.SSLError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
        shake_hands(server_context(settings), client_context(trusting(certificates)))


@pytest.mark.parametrize("kind", ["expired", "of another authority"])
@pytest.mark.parametrize("auth", ["requested", "required"])
def test_a_client_with_a_wrong_certificate_is_refused(
    settings: Settings, certificates: Certificates, tmp_path: Path, kind: str, auth: str
) -> None:
    settings.ssl_client_auth = auth
    settings.ssl_truststore_location = str(certificates.ca)
    path = certificates.expired()
    if kind == "of another authority":
        path = Certificates(tmp_path / "other").client("mallory")
    wrong = trusting(certificates, path)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(server_context(settings), client_context(wrong))


@pytest.mark.parametrize(
    ("days", "said"), [(-1, "has expired"), (3, "expires in 3 days"), (20, "")]
)
def test_the_end_of_a_server_s_certificate_is_told(
    certificates: Certificates, caplog: pytest.LogCaptureFixture, days: int, said: str
) -> None:
    ends = datetime.now(UTC) + timedelta(days=days, minutes=1)
    path = certificates.ending("ending", ends)
    tls = ServerTls(Settings(ssl_keystore_location=str(path)), "OUTSIDE")
    assert len(caplog.records) == bool(said)
    tls.reload()
    told = [one for one in caplog.messages if "put a new one" in one]
    assert len(told) == 2 * bool(said)
    assert all(said in one and "OUTSIDE" in one and str(path) in one for one in told)


def test_that_a_certificate_ends_is_told_once_a_day(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    path = certificates.ending("ending", datetime.now(UTC) + timedelta(days=3))
    served = Served(Settings(ssl_keystore_location=str(path)))
    for _ in range(4):
        served.now += 43_200.0
        served.tls.context()
    assert len([one for one in caplog.messages if "put a new one" in one]) == 3


# Certificates that were taken back


@pytest.fixture
def mutual(settings: Settings, certificates: Certificates) -> Settings:
    """A server that asks for certificates."""
    settings.ssl_client_auth = "required"
    settings.ssl_truststore_location = str(certificates.ca)
    return settings


@pytest.mark.parametrize("auth", ["requested", "required"])
def test_a_revoked_certificate_is_refused_and_others_are_not(
    mutual: Settings, certificates: Certificates, auth: str
) -> None:
    mutual.ssl_client_auth = auth
    alice, bob = certificates.client("alice"), certificates.client("bob")
    mutual.ssl_crl_location = str(certificates.revoked(alice))
    server = server_context(mutual)
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate revoked"):
        shake_hands(server, client_context(trusting(certificates, alice)))
    shake_hands(server, client_context(trusting(certificates, bob)))


def test_certificates_of_an_authority_without_a_list_are_refused(
    mutual: Settings, certificates: Certificates
) -> None:
    mutual.ssl_crl_location = str(certificates.revoked(issuer="another"))
    alice = trusting(certificates, certificates.client("alice"))
    with pytest.raises(ssl.SSLCertVerificationError, match="unable to get certificate CRL"):
        shake_hands(server_context(mutual), client_context(alice))


def test_a_file_may_have_the_lists_of_several_authorities(
    mutual: Settings, certificates: Certificates, tmp_path: Path
) -> None:
    alice = certificates.client("alice")
    lists = tmp_path / "lists.pem"
    other = Certificates(tmp_path / "other").revoked(issuer="another").read_bytes()
    lists.write_bytes(b"as text\n" + other + certificates.revoked(alice).read_bytes())
    mutual.ssl_crl_location = str(lists)
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate revoked"):
        shake_hands(server_context(mutual), client_context(trusting(certificates, alice)))


def test_a_certificate_beside_a_list_makes_no_authority(
    mutual: Settings, certificates: Certificates, tmp_path: Path
) -> None:
    path = certificates.revoked()
    path.write_bytes(path.read_bytes() + Certificates(tmp_path / "other").ca.read_bytes())
    mutual.ssl_crl_location = str(path)
    with pytest.raises(ConfigError, match=r"belong to ssl\.truststore\.location"):
        server_context(mutual)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "No such file"),
        (b"", "expected lists of revoked certificates in PEM"),
        (b"0\x82\x01", "openssl crl -inform DER"),
        (b"-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n", "expected lists"),
        (b"-----BEGIN X509 CRL-----\nAA", "expected lists"),
    ],
)
def test_what_is_no_list_is_refused(
    mutual: Settings, tmp_path: Path, content: bytes | None, why: str
) -> None:
    path = tmp_path / "crl.pem"
    if content is not None:
        path.write_bytes(content)
    mutual.ssl_crl_location = str(path)
    with pytest.raises(ConfigError) as refused:
        server_context(mutual)
    assert str(refused.value).startswith(f"ssl.crl.location={path}: ")
    assert why in str(refused.value)


@pytest.mark.parametrize(
    ("since", "why"), [(timedelta(days=-3), "has expired"), (timedelta(hours=1), "before")]
)
def test_a_list_that_is_not_valid_now_is_refused(
    mutual: Settings, certificates: Certificates, since: timedelta, why: str
) -> None:
    now = datetime.now(UTC)
    mutual.ssl_crl_location = str(certificates.revoked(since=now + since))
    with pytest.raises(ConfigError, match=rf"list of CN=Qbus trial authority .*{why}"):
        server_context(mutual)


def test_a_list_is_not_read_where_nobody_is_asked(settings: Settings) -> None:
    settings.ssl_crl_location = "no such file"
    server_context(settings)


def test_a_changed_list_counts_within_a_second(
    mutual: Settings, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    path, alice = certificates.revoked(), certificates.client("alice")
    mutual.ssl_crl_location = str(path)
    served, security = Served(mutual), trusting(certificates, alice)
    shake_hands(served.tls.context(), client_context(security))
    certificates.replace(path, certificates.revoked(alice, name="newer"))
    served.now += 1.0
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate revoked"):
        shake_hands(served.tls.context(), client_context(security))
    path.write_bytes(b"torn")
    served.now += 1.0
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate revoked"):
        shake_hands(served.tls.context(), client_context(security))
    assert "the former ones stay in force" in caplog.text
    certificates.replace(path, certificates.revoked(name="newest"))
    served.now += 1.0
    shake_hands(served.tls.context(), client_context(security))


class HalfAMinuteAgo(datetime):
    """A clock that is slow."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        return super().now(tz) - timedelta(seconds=30)


def test_a_list_that_expires_lets_nobody_in(
    mutual: Settings, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was valid when the server took it; handshakes go by the clock of the system."""
    mutual.ssl_crl_location = str(certificates.revoked(days=45 / 86_400))  # begun a minute ago
    monkeypatch.setattr(tls, "datetime", HalfAMinuteAgo)
    server = server_context(mutual)
    security = trusting(certificates, certificates.client("alice"))
    with pytest.raises(ssl.SSLCertVerificationError, match="CRL has expired"):
        shake_hands(server, client_context(security))


def test_a_context_made_elsewhere_is_used_as_it_is() -> None:
    own = ssl.create_default_context()
    assert client_context(ClientSecurity(protocol="SSL", ssl_context=own)) is own


def test_a_clients_files_are_named_when_they_cannot_be_read(tmp_path: Path) -> None:
    missing = ClientSecurity(protocol="SSL", ssl_ca_location=str(tmp_path / "no.pem"))
    with pytest.raises(ConfigError, match=r"ssl\.ca\.location=.*no\.pem: No such file"):
        client_context(missing)


# Certificates that change


class Served:
    """A server whose clock and files the test changes."""

    def __init__(self, settings: Settings) -> None:
        self.now = 0.0
        self.tls = ServerTls(settings, "OUTSIDE", clock=lambda: self.now)

    def serial(self, certificates: Certificates) -> str:
        """What tells the certificates apart that a new connection gets."""
        _, theirs = shake_hands(self.tls.context(), client_context(trusting(certificates)))
        return str((theirs.getpeercert() or {})["serialNumber"])


def test_a_changed_certificate_is_used_within_a_second(
    settings: Settings, certificates: Certificates
) -> None:
    served = Served(settings)
    former = served.serial(certificates)
    path = Path(settings.ssl_keystore_location or "")
    certificates.replace(path, certificates.server("renewed"))
    assert served.serial(certificates) == former  # nobody has looked
    served.now += 1.0
    renewed = served.serial(certificates)
    assert renewed != former
    served.now += 5.0
    assert served.serial(certificates) == renewed
    assert (served.tls.reloads, served.tls.failed_reloads) == (1, 0)


def test_the_operator_can_have_it_read_at_once(
    settings: Settings, certificates: Certificates
) -> None:
    served = Served(settings)
    former = served.serial(certificates)
    path = Path(settings.ssl_keystore_location or "")
    certificates.replace(path, certificates.server("renewed"))
    assert served.tls.reload()
    assert served.serial(certificates) != former


@pytest.mark.parametrize("how", ["torn", "gone"])
def test_what_cannot_be_read_changes_nothing_and_is_told_once(
    settings: Settings, certificates: Certificates, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    served = Served(settings)
    former = served.serial(certificates)
    path = Path(settings.ssl_keystore_location or "")
    whole = path.read_bytes()
    if how == "torn":
        path.write_bytes(whole[:100])
    else:
        path.unlink()
    for _ in range(3):
        served.now += 1.0
        assert served.serial(certificates) == former
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len(told) == 1
    assert "OUTSIDE" in told[0]
    assert str(path) in told[0]
    certificates.replace(path, certificates.server("renewed"))
    served.now += 1.0
    assert served.serial(certificates) != former

"""Certificates for trials: they verify, name what they should, and lie in files as they should."""

import ssl
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, ExtensionOID

from qbus.errors import ConfigError
from qbus.security.trial_ca import TrialAuthority, days_left, local_hosts, write_new


@pytest.fixture
def authority(tmp_path: Path) -> TrialAuthority:
    return TrialAuthority.create(tmp_path / "ca.pem", tmp_path / "ca.key")


def handshake(directory: Path, certificate: bytes, key: bytes, host: str) -> None:
    """Shake hands in memory with a server that has this certificate. Raises ssl.SSLError."""
    (directory / "s.pem").write_bytes(certificate + key)
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(directory / "s.pem")
    client_context = ssl.create_default_context(cafile=str(directory / "ca.pem"))
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(to_client, to_server, server_hostname=host)
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(10):
        done = 0
        for side in (client, server):
            try:
                side.do_handshake()
                done += 1
            except ssl.SSLWantReadError:
                pass
        if done == 2:
            return
    raise AssertionError("the handshake does not end")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1", "bus.example"])
def test_clients_accept_a_server_at_its_names(
    authority: TrialAuthority, tmp_path: Path, host: str
) -> None:
    certificate, key = authority.issue("server", [*local_hosts(), "bus.example"])
    handshake(tmp_path, certificate, key, host)


def test_clients_refuse_a_server_at_other_names(authority: TrialAuthority, tmp_path: Path) -> None:
    certificate, key = authority.issue("server", ["127.0.0.1"])
    with pytest.raises(ssl.SSLCertVerificationError, match=r"bus\.example"):
        handshake(tmp_path, certificate, key, "bus.example")


def test_clients_refuse_what_another_authority_signed(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    stranger = TrialAuthority.create(other / "ca.pem", other / "ca.key")
    TrialAuthority.create(tmp_path / "ca.pem", tmp_path / "ca.key")
    certificate, key = stranger.issue("server", ["127.0.0.1"])
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(tmp_path, certificate, key, "127.0.0.1")


def test_a_client_s_certificate_is_none_of_a_server(authority: TrialAuthority) -> None:
    pem, _ = authority.issue("alice")
    found = x509.load_pem_x509_certificate(pem)
    assert found.subject.rfc4514_string() == "CN=alice"
    usage = found.extensions.get_extension_for_oid(ExtensionOID.EXTENDED_KEY_USAGE).value
    assert isinstance(usage, x509.ExtendedKeyUsage)
    assert list(usage) == [ExtendedKeyUsageOID.CLIENT_AUTH]


def test_keys_are_for_their_owner_alone_and_nothing_is_replaced(
    authority: TrialAuthority, tmp_path: Path
) -> None:
    assert stat.S_IMODE((tmp_path / "ca.key").stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        write_new(tmp_path / "ca.key", b"", secret=True)


def test_an_authority_is_loaded_again(authority: TrialAuthority, tmp_path: Path) -> None:
    again = TrialAuthority.load(tmp_path / "ca.pem", tmp_path / "ca.key")
    certificate, key = again.issue("server", ["127.0.0.1"], days=30)
    handshake(tmp_path, certificate, key, "127.0.0.1")
    assert 29 < days_left(tmp_path / "s.pem") <= 30


def test_files_that_hold_something_else(authority: TrialAuthority, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("x")
    with pytest.raises(ConfigError, match="no certificate"):
        days_left(tmp_path / "x")
    with pytest.raises(ConfigError, match="no certificate and its key"):
        TrialAuthority.load(tmp_path / "ca.pem", tmp_path / "x")

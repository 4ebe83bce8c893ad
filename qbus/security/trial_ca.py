"""A certificate authority for trials and tests: one key, and what it signs.

It is not for production: its key lies unencrypted beside the certificates, nothing is ever revoked,
and whoever reads the key can pretend to be any broker and any user. What it makes are PEM files as
brokers and clients read them; keys have mode 0600. The ``cryptography`` package does the work.
"""

import ipaddress
import os
import socket
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from qbus.errors import ConfigError

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

CA_CERTIFICATE: Final = "ca.pem"
CA_KEY: Final = "ca.key"
_CA_DAYS: Final = 3650
_BACKDATED: Final = timedelta(hours=1)
"""How long before now a certificate is valid: clocks differ."""


class TrialAuthority:
    """Signs certificates. Its own certificate is ``ca.pem``, its key ``ca.key``."""

    def __init__(self, certificate: "x509.Certificate", key: "EllipticCurvePrivateKey") -> None:
        self._certificate = certificate
        self._key = key

    @classmethod
    def create(cls, certificate: Path, key: Path) -> Self:
        """Make an authority in new files. Raises FileExistsError and other OSErrors."""
        from cryptography import x509  # noqa: PLC0415 - takes a while
        from cryptography.hazmat.primitives import hashes  # noqa: PLC0415

        own = _new_key()
        name = _name("Qbus trial authority")
        now = datetime.now(UTC)
        built = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(own.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _BACKDATED)
            .not_valid_after(now + timedelta(days=_CA_DAYS))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_signs(), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(own.public_key()), critical=False
            )
            .sign(own, hashes.SHA256())
        )
        write_new(key, _key_pem(own), secret=True)
        write_new(certificate, _certificate_pem(built))
        return cls(built, own)

    @classmethod
    def load(cls, certificate: Path, key: Path) -> Self:
        """Read an authority. Raises OSError, and ConfigError for files that hold something else."""
        from cryptography import x509  # noqa: PLC0415
        from cryptography.hazmat.primitives.asymmetric.ec import (  # noqa: PLC0415
            EllipticCurvePrivateKey,
        )
        from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415
            load_pem_private_key,
        )

        try:
            found = x509.load_pem_x509_certificate(certificate.read_bytes())
            own = load_pem_private_key(key.read_bytes(), None)
        except ValueError:
            raise ConfigError(f"{certificate} and {key} hold no certificate and its key") from None
        if not isinstance(own, EllipticCurvePrivateKey):
            raise ConfigError(f"{key} was not made by 'qbus tls init'")
        return cls(found, own)

    def issue(self, name: str, hosts: Sequence[str] = (), days: int = 365) -> tuple[bytes, bytes]:
        """Return a certificate with those that lead to the authority, and its key, in PEM.

        name: the common name: a client is the principal ``User:CN=name``. hosts: the names and
        addresses at which clients reach a server; a client needs none.
        """
        from cryptography import x509  # noqa: PLC0415
        from cryptography.hazmat.primitives import hashes  # noqa: PLC0415
        from cryptography.x509.oid import ExtendedKeyUsageOID  # noqa: PLC0415

        own = _new_key()
        now = datetime.now(UTC)
        # Brokers are servers, and clients of each other.
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
        usages += [ExtendedKeyUsageOID.SERVER_AUTH] if hosts else []
        builder = (
            x509.CertificateBuilder()
            .subject_name(_name(name))
            .issuer_name(self._certificate.subject)
            .public_key(own.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _BACKDATED)
            .not_valid_after(now + timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        if hosts:
            builder = builder.add_extension(_alternatives(hosts), critical=False)
        signed = builder.sign(self._key, hashes.SHA256())
        return _certificate_pem(signed) + _certificate_pem(self._certificate), _key_pem(own)


def local_hosts() -> list[str]:
    """The names and addresses by which this machine is reached from itself and by its name."""
    names = ["localhost", socket.gethostname(), socket.getfqdn(), "127.0.0.1", "::1"]
    return list(dict.fromkeys(names))


def days_left(certificate: Path) -> float:
    """For how many days a certificate is still valid. Raises OSError, ConfigError."""
    from cryptography import x509  # noqa: PLC0415

    try:
        found = x509.load_pem_x509_certificate(certificate.read_bytes())
    except ValueError:
        raise ConfigError(f"{certificate} holds no certificate") from None
    return (found.not_valid_after_utc - datetime.now(UTC)) / timedelta(days=1)


def write_new(path: Path, content: bytes, *, secret: bool = False) -> None:
    """Write a file that does not exist yet; only its owner may read a ``secret`` one.

    Raises FileExistsError and other OSErrors.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o600 if secret else 0o644), "wb") as file:
        file.write(content)


def _new_key() -> "EllipticCurvePrivateKey":
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

    return ec.generate_private_key(ec.SECP256R1())


def _name(common_name: str) -> "x509.Name":
    from cryptography import x509  # noqa: PLC0415
    from cryptography.x509.oid import NameOID  # noqa: PLC0415

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _alternatives(hosts: Sequence[str]) -> "x509.SubjectAlternativeName":
    from cryptography import x509  # noqa: PLC0415

    names: list[x509.GeneralName] = []
    for host in hosts:
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(host))
    return x509.SubjectAlternativeName(names)


def _signs() -> "x509.KeyUsage":
    from cryptography import x509  # noqa: PLC0415

    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )


def _certificate_pem(certificate: "x509.Certificate") -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding  # noqa: PLC0415

    return certificate.public_bytes(Encoding.PEM)


def _key_pem(key: "EllipticCurvePrivateKey") -> bytes:
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415

    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )

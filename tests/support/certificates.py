"""Certificates for tests: an authority, what it signs, and what it should not have signed."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ObjectIdentifier

from qbus.security.trial_ca import CA_CERTIFICATE, CA_KEY, TrialAuthority

LOCAL = ("localhost", "127.0.0.1")

_OIDS = {
    "CN": "2.5.4.3",
    "C": "2.5.4.6",
    "STREET": "2.5.4.9",
    "O": "2.5.4.10",
    "OU": "2.5.4.11",
    "UID": "0.9.2342.19200300.100.1.1",
    "DC": "0.9.2342.19200300.100.1.25",
    "EMAIL": "1.2.840.113549.1.9.1",
}


class Certificates:
    """An authority in a directory of its own, and files with what it has signed."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.ca = directory / CA_CERTIFICATE
        self._authority = TrialAuthority.create(self.ca, directory / CA_KEY)

    def server(self, name: str = "broker", hosts: Sequence[str] = LOCAL) -> Path:
        """A file with the key and the chain of a server."""
        return self._written(name, *self._authority.issue(name, hosts))

    def client(self, name: str) -> Path:
        """A file with the key and the chain of a client."""
        return self._written(name, *self._authority.issue(name))

    def expired(self, name: str = "expired") -> Path:
        """The same of a client whose certificate ended yesterday."""
        return self.ending(name, datetime.now(UTC) - timedelta(days=1))

    def ending(self, name: str, end: datetime) -> Path:
        """The same of a client whose certificate ends then."""
        key = ec.generate_private_key(ec.SECP256R1())
        authority = x509.load_pem_x509_certificate(self.ca.read_bytes())
        signing = load_pem_private_key((self.directory / CA_KEY).read_bytes(), None)
        assert isinstance(signing, ec.EllipticCurvePrivateKey)
        made = _built(_name([("CN", name)]), authority.subject, key, end).sign(
            signing, hashes.SHA256()
        )
        return self._written(name, made.public_bytes(Encoding.PEM), _pem(key))

    def with_password(self, name: str, password: str) -> Path:
        """A file of a server whose key is encrypted."""
        chain, key = self._authority.issue(name, LOCAL)
        loaded = load_pem_private_key(key, None)
        secret = loaded.private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password.encode())
        )
        return self._written(name, chain, secret)

    def revoked(
        self,
        *certificates: Path,
        name: str = "crl",
        since: datetime | None = None,
        days: float = 1,
        issuer: str = "",
    ) -> Path:
        """A file with the authority's list of those that are revoked; it is valid for so long.

        ``issuer``: a name of the authority that is not its own.
        """
        authority = x509.load_pem_x509_certificate(self.ca.read_bytes())
        signing = load_pem_private_key((self.directory / CA_KEY).read_bytes(), None)
        assert isinstance(signing, ec.EllipticCurvePrivateKey)
        begin = since or datetime.now(UTC) - timedelta(minutes=1)
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(_name([("CN", issuer)]) if issuer else authority.subject)
            .last_update(begin)
            .next_update(begin + timedelta(days=days))
        )
        for path in certificates:
            serial = x509.load_pem_x509_certificate(path.read_bytes()).serial_number
            one = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(begin)
            builder = builder.add_revoked_certificate(one.build())
        made = self.directory / f"{name}.pem"
        made.write_bytes(builder.sign(signing, hashes.SHA256()).public_bytes(Encoding.PEM))
        return made

    def replace(self, path: Path, other: Path) -> None:
        """Put the content of ``other`` in the place of ``path``, as tools that renew do."""
        new = path.with_suffix(".new")
        new.write_bytes(other.read_bytes())
        new.rename(path)

    def _written(self, name: str, chain: bytes, key: bytes) -> Path:
        path = self.directory / f"{name}.pem"
        path.write_bytes(key + chain)
        return path


def self_signed(attributes: Sequence[tuple[str, str]]) -> bytes:
    """A certificate in DER for a name of these attributes, as they follow in the encoding."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(attributes)
    end = datetime.now(UTC) + timedelta(days=1)
    return _built(name, name, key, end).sign(key, hashes.SHA256()).public_bytes(Encoding.DER)


def _built(
    name: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, end: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(end - timedelta(days=30))
        .not_valid_after(end)
    )


def _name(attributes: Sequence[tuple[str, str]]) -> x509.Name:
    return x509.Name(
        [x509.NameAttribute(ObjectIdentifier(_OIDS[key]), value) for key, value in attributes]
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives.serialization import NoEncryption

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

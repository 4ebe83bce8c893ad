"""What authorizes in a broker with a given configuration."""

import logging
from pathlib import Path

from qbus.config import BrokerConfig, ListenerConfig, SecurityProtocol
from qbus.errors import ConfigError
from qbus.security.acls import AclIndex
from qbus.security.principals import PrincipalMapper, subject

from ..audit import AuditFile, AuditLimits, AuditLog
from ..net.peer import ANONYMOUS, Principal
from .access import AccessControl
from .authorizer import AclAuthorizer

_log = logging.getLogger(__name__)

_USER = "User"


def open_access(config: BrokerConfig, rules: AclIndex, *, is_alone: bool) -> AccessControl:
    """Make what says who may do what, and start the audit log if there is to be one.

    ``rules``: the access rules as the metadata cache has them. Brokers become super users.
    ``is_alone``: there are no other brokers.

    Raises:
        ConfigError: the audit log cannot be written, or the broker's own certificate not be read.
    """
    brokers = broker_principals(config)
    rules.add_super_users(map(str, brokers))
    authenticates = config.authenticates or config.jobs_authenticate
    authorizer = AclAuthorizer(rules) if config.enforces_acls(authenticates=authenticates) else None
    if authorizer is not None and not is_alone and not brokers:
        _warn_of_unknown_brokers(config)
    return AccessControl(authorizer, open_audit_log(config), brokers)


def _warn_of_unknown_brokers(config: BrokerConfig) -> None:
    """Say that other brokers cannot be told from clients, and so may not replicate."""
    if str(ANONYMOUS) not in config.super_user_principals:
        _log.warning(
            "access rules are enforced, but the listener %s, which brokers use among themselves, "
            "does not authenticate them: as %s they may not replicate from here. Name another one "
            "with inter.broker.listener.name, or state super.users=%s if nobody else reaches it",
            config.inter_broker_listener,
            ANONYMOUS,
            ANONYMOUS,
        )


def open_audit_log(config: BrokerConfig) -> AuditLog | None:
    """Start the audit log, if one is configured. Raises ConfigError: it cannot be written."""
    if not config.qbus_audit_log_path:
        return None
    limits = AuditLimits(
        config.qbus_audit_log_max_bytes, config.qbus_audit_log_files, config.qbus_audit_queue_size
    )
    audit = AuditLog(
        AuditFile(Path(config.qbus_audit_log_path), limits),
        name=f"the audit log {config.qbus_audit_log_path}",
        queue_size=limits.queue_size,
        sampling=lambda: config.qbus_audit_data_sampling,
        node_id=config.node_id,
    )
    audit.start()
    return audit


def broker_principals(config: BrokerConfig) -> frozenset[Principal]:
    """As whom brokers of this cluster come: the user they share, or their certificate's.

    Between brokers are the listener of that name, and the one where their jobs are served with TLS.
    The certificate is this broker's own; where each has another name, ``super.users`` names them.

    Raises:
        ConfigError: the certificate cannot be read.
    """
    between = config.inter_broker_listener
    own = config.for_listener(between)
    names = {config.sasl_inter_broker_username, own.sasl_inter_broker_username}
    if config.protocol_of(between) is SecurityProtocol.SSL:
        names.add(_certified_name(own))
    for jobs in config.disque_listeners:
        if jobs.protocol.is_encrypted:
            names.add(_certified_name(config.for_listener(jobs.name)))
    return frozenset(Principal(_USER, name) for name in names if name)


def _certified_name(own: ListenerConfig) -> str | None:
    """Who a broker is by its certificate, where it is asked for one. Raises ConfigError."""
    path = own.ssl_keystore_location or own.ssl_certificate_location
    if own.ssl_client_auth == "none" or not path:
        return None
    return PrincipalMapper(own.ssl_principal_mapping_rules).name(subject(_certificate(path)))


def _certificate(path: str) -> bytes:
    """The first certificate of a PEM file, in DER. Raises ConfigError."""
    from cryptography import x509  # noqa: PLC0415 - only where brokers have certificates
    from cryptography.hazmat.primitives.serialization import Encoding  # noqa: PLC0415

    try:
        first, *_ = x509.load_pem_x509_certificates(Path(path).read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: expected a certificate in PEM: {error}") from None
    return first.public_bytes(Encoding.DER)

"""How brokers protect the connections that they open to one another."""

from qbus.config import BrokerConfig
from qbus.security.client import ClientSecurity
from qbus.security.connecting import OutgoingSecurity


def inter_broker_security(config: BrokerConfig) -> ClientSecurity:
    """Return what a broker's configuration says of connections to other brokers.

    It is a client of their inter-broker listener, with its own certificate and the user that all
    brokers share. Raises :class:`~qbus.errors.ConfigError`.
    """
    name = config.inter_broker_listener
    protocol = config.protocol_of(name)
    own = config.for_listener(name)
    values: dict[str, object] = {}
    if protocol.is_encrypted:
        certificate = own.ssl_keystore_location or own.ssl_certificate_location
        values |= {
            "ssl_ca_location": own.ssl_truststore_location,
            "ssl_certificate_location": certificate,
            "ssl_key_location": None if own.ssl_keystore_location else own.ssl_key_location,
            "ssl_key_password": own.ssl_key_password,
            "check_hostname": own.ssl_endpoint_identification_algorithm == "https",
        }
    if protocol.is_sasl:
        values |= {
            "sasl_mechanism": own.sasl_mechanism_inter_broker_protocol,
            "sasl_username": own.sasl_inter_broker_username,
            "sasl_password": own.sasl_inter_broker_password,
        }
    return ClientSecurity(protocol=protocol.value, **values)  # type: ignore[arg-type]


def outgoing_security(config: BrokerConfig) -> OutgoingSecurity | None:
    """Return it ready for connections; None where nothing protects them, or there are no others.

    Raises :class:`~qbus.errors.ConfigError`.
    """
    protocol = config.protocol_of(config.inter_broker_listener)
    if not (protocol.is_encrypted or protocol.is_sasl):
        return None
    if (
        protocol.is_sasl
        and not config.for_listener(config.inter_broker_listener).sasl_inter_broker_username
    ):
        return None  # a broker alone: it asks nobody
    return OutgoingSecurity(inter_broker_security(config))

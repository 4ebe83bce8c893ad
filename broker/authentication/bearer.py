"""Bearer tokens: rules and keys by the configuration, and who a token is of."""

import logging
import time
from collections.abc import Mapping
from typing import Final

from qbus.config import BrokerConfig
from qbus.errors import AuthenticationError, ConfigError
from qbus.security.sasl import OAUTHBEARER

from .exchange import Identity, TokenRefused, TokenService
from .key_set import KeySet
from .tokens import InsufficientScope, TokenRules, TokenVerifier, UnknownKey

_log = logging.getLogger(__name__)

_SCOPE: Final = "insufficient_scope"


class BearerTokens:
    """Decides about the tokens of one listener."""

    def __init__(self, rules: TokenRules, keys: KeySet, reserved: frozenset[str]) -> None:
        """``reserved``: users that no token can be of: the brokers' own, and nobody."""
        self._rules = rules
        self._keys = keys
        self._verifier = TokenVerifier(rules, keys)
        self._reserved = reserved

    async def verify(self, token: str) -> Identity:
        """Who a token is of. A key that is not known may make the key set be read again.

        Raises:
            TokenRefused: it is not accepted.
        """
        try:
            try:
                found = self._verifier.verify(token)
            except UnknownKey:
                if not await self._keys.reload():
                    raise
                found = self._verifier.verify(token)
        except InsufficientScope as error:
            raise TokenRefused(str(error), _SCOPE, " ".join(self._rules.required_scopes)) from None
        except AuthenticationError as error:
            raise TokenRefused(str(error)) from None
        if found.principal in self._reserved:
            raise TokenRefused("a token that names the brokers' own user, or nobody")
        return Identity(found.principal, found.expires_at)

    async def look_after(self) -> None:
        """Read the keys, if it is time for that."""
        await self._keys.look_after()

    def close(self) -> None:
        """Stop reading keys."""
        self._keys.close()


def token_services(config: BrokerConfig, reserved: frozenset[str]) -> Mapping[str, TokenService]:
    """What decides about tokens on each listener that accepts them.

    Raises:
        ConfigError: a setting is missing without which any token would do.
    """
    services = {}
    for listener in config.kafka_listeners:
        own = config.for_listener(listener.name)
        if not listener.protocol.is_sasl or OAUTHBEARER not in own.sasl_enabled_mechanisms:
            continue
        rules = TokenRules(
            audiences=tuple(own.sasl_oauthbearer_expected_audience),
            issuer=own.sasl_oauthbearer_expected_issuer,
            skew_s=own.sasl_oauthbearer_clock_skew_seconds,
            algorithms=frozenset(own.sasl_oauthbearer_algorithms),
            principal_claim=own.sasl_oauthbearer_sub_claim_name,
            scope_claim=own.sasl_oauthbearer_scope_claim_name,
            required_scopes=tuple(own.sasl_oauthbearer_required_scopes),
        )
        url = own.sasl_oauthbearer_jwks_endpoint_url
        if not url:
            raise ConfigError(
                f"listeners={listener}: expected sasl.oauthbearer.jwks.endpoint.url with "
                "OAUTHBEARER, which says where the keys of tokens are"
            )
        if not (rules.audiences or rules.issuer):
            raise ConfigError(
                f"listeners={listener}: expected sasl.oauthbearer.expected.audience or "
                "sasl.oauthbearer.expected.issuer with OAUTHBEARER: a token for anything else "
                "would do"
            )
        keys = KeySet(
            url,
            refresh_s=own.sasl_oauthbearer_jwks_endpoint_refresh_ms / 1000,
            retry_s=own.sasl_oauthbearer_jwks_endpoint_retry_backoff_ms / 1000,
            now=time.monotonic,
        )
        services[listener.name] = BearerTokens(rules, keys, reserved)
    return services

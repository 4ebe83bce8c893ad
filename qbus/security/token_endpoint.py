"""A token endpoint (OAuth 2): the client credentials grant of RFC 6749, section 4.4."""

import json
from base64 import b64encode
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.parse import quote_plus, urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from qbus.errors import NoToken

_TIMEOUT_S = 10.0
_MAX_ANSWER = 256 * 1024


class _NoRedirects(HTTPRedirectHandler):
    """Follows no redirect: the client's credentials are for the endpoint alone."""

    def redirect_request(self, *_: object) -> None:
        """Have the answer be an error."""


def ask_for_token(url: str, client_id: str, secret: str, scope: str | None) -> str:
    """Return a new token for a client's own credentials; waits for the endpoint.

    Raises :class:`~qbus.errors.NoToken`.
    """
    form = {"grant_type": "client_credentials"} | ({"scope": scope} if scope else {})
    pair = f"{quote_plus(client_id)}:{quote_plus(secret)}"
    request = Request(  # noqa: S310 - the scheme was checked
        url,
        data=urlencode(form).encode(),
        headers={
            "Accept": "application/json",
            "Authorization": f"Basic {b64encode(pair.encode()).decode()}",
        },
    )
    return _token_of(_answer(request, url), url)


def _answer(request: Request, url: str) -> object:
    # http is for this machine alone: no proxy that the environment names is to see the secret.
    direct = [ProxyHandler({})] if urlsplit(url).scheme == "http" else []
    try:
        with build_opener(_NoRedirects, *direct).open(request, timeout=_TIMEOUT_S) as response:
            answer: object = json.loads(response.read(_MAX_ANSWER))
    except HTTPError as error:
        with error:
            raise NoToken(f"{url}: it answers {error.code} {error.reason}") from None
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", "it does not answer with JSON")
        raise NoToken(f"{url}: {reason}") from None
    return answer


def _token_of(answer: object, url: str) -> str:
    token = answer.get("access_token") if isinstance(answer, dict) else None
    if not isinstance(token, str) or not token:
        raise NoToken(f"{url}: its answer has no access_token")
    return token

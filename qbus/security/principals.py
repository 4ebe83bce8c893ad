"""Who a client with a certificate is: rules from distinguished names to names of users.

The rules are Kafka's ``ssl.principal.mapping.rules`` (KIP-371): ``DEFAULT``, and
``RULE:pattern/replacement/`` with ``L`` or ``U`` behind it for lower or upper case. The first rule
whose pattern matches the whole name applies. Patterns are Java's; what Python writes in another way
is translated. Distinguished names are written as Java writes them (RFC 2253).
"""

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from qbus.errors import ConfigError

if TYPE_CHECKING:
    from cryptography.x509 import NameAttribute

_ESCAPED: Final = r"(?:\\.|[^\\/])*"
_RULE: Final = re.compile(
    rf"\s*(?:(?P<default>DEFAULT)|RULE:(?P<pattern>{_ESCAPED})/(?P<replacement>{_ESCAPED})/"
    r"(?P<case>[LU]?))\s*(?:,\s*|$)"
)
_JAVA_GROUP: Final = re.compile(r"\\(.)|\$(\d)(\d*)|\$\{(\w+)\}")
_NAMED_GROUP: Final = re.compile(r"\(\?<(?![=!])")
_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_SPECIAL: Final = frozenset(',=+<>#;"\\')

Rule = Callable[[str], str | None]


class PrincipalMapper:
    """Applies the rules of one configuration."""

    def __init__(self, rules: str = "DEFAULT") -> None:
        """``rules``: as ``ssl.principal.mapping.rules`` has them; none: nobody is anyone.

        Raises:
            ValueError: they have another form; the message says which one is expected.
        """
        self._rules = list(_parse(rules))

    def name(self, distinguished_name: str) -> str | None:
        """Return the user's name; None if no rule applies, and so the client is nobody."""
        for rule in self._rules:
            found = rule(distinguished_name)
            if found is not None:
                return found
        return None


def subject(certificate: bytes) -> str:
    """Return the distinguished name of a certificate's subject, as Java writes it (RFC 2253).

    ``certificate``: in DER.

    Raises:
        ConfigError: it cannot be read.
    """
    from cryptography import x509  # noqa: PLC0415 - only where clients have certificates

    try:
        name = x509.load_der_x509_certificate(certificate).subject
        parts = ["+".join(map(_attribute, rdn)) for rdn in name.rdns]
    except Exception as error:  # noqa: BLE001 - the library has many for what is malformed
        raise ConfigError(f"the client's certificate cannot be read: {error}") from None
    return ",".join(reversed(parts))


def _attribute(attribute: "NameAttribute[str | bytes]") -> str:
    oid = attribute.oid.dotted_string
    keyword = _KEYWORDS.get(oid)
    if keyword is None or not isinstance(attribute.value, str):
        return f"{oid}=#{_encoded_value(attribute).hex()}"
    return f"{keyword}={_escaped(attribute.value)}"


def _escaped(value: str) -> str:
    """Escape what RFC 2253 and Java escape: special characters, and blanks at both ends."""
    leading = len(value) - len(value.lstrip(" "))
    trailing = len(value.rstrip(" "))
    return "".join(
        "\\00"
        if character == "\0"
        else f"\\{character}"
        if character in _SPECIAL or (character == " " and not leading <= index < trailing)
        else character
        for index, character in enumerate(value)
    )


def _encoded_value(attribute: "NameAttribute[str | bytes]") -> bytes:
    """Return the value's encoding in DER: what is left of a name with nothing else in it."""
    from cryptography import x509  # noqa: PLC0415 - as above

    data = x509.Name([attribute]).public_bytes()
    for _ in range(3):  # the sequence of sets of sequences of type and value
        data = _content(data)[0]
    return _content(data)[1]


def _content(data: bytes) -> tuple[bytes, bytes]:
    """Return the content of the first element of DER, and what comes behind it."""
    length, start = data[1], 2
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(data[2:start], "big")
    return data[start : start + length], data[start + length :]


def _parse(rules: str) -> Iterator[Rule]:
    rules = rules.strip()
    position = 0
    while position < len(rules):
        found = _RULE.match(rules, position)
        if found is None or found.end() == position:
            raise ValueError(
                "DEFAULT, or rules as RULE:^CN=(.*?),.*$/$1/L separated by commas, which "
                f"{rules[position : position + 60]!r} is not"
            )
        position = found.end()
        yield _default if found["default"] else _rule(found)


def _default(distinguished_name: str) -> str | None:
    return distinguished_name


def _rule(found: re.Match[str]) -> Rule:
    try:
        pattern = re.compile(_NAMED_GROUP.sub("(?P<", found["pattern"]))
        replacement = _python_replacement(found["replacement"], pattern.groups)
        pattern.sub(replacement, "")  # refuses what names no group
    except (re.error, IndexError, RecursionError) as error:
        raise ValueError(
            f"a pattern that can be read, which {found[0]!r} has not: {error}"
        ) from None
    change: Callable[[str], str] = {"L": str.lower, "U": str.upper}.get(found["case"], str)

    def apply(distinguished_name: str) -> str | None:
        if pattern.fullmatch(distinguished_name) is None:
            return None
        return change(pattern.sub(replacement, distinguished_name))

    return apply


def _python_replacement(replacement: str, groups: int) -> str:
    r"""Translate Java's ``$1``, ``${name}`` and ``\$`` of a replacement.

    A number that no group has stands for itself, as Kafka has it.
    """
    made, position = [], 0
    for found in _JAVA_GROUP.finditer(replacement):
        made.append(_literal(replacement[position : found.start()]))
        made.append(_reference(found, groups))
        position = found.end()
    made.append(_literal(replacement[position:]))
    if "$" in _JAVA_GROUP.sub("", replacement):
        raise IndexError("a $ in a replacement is followed by a group's number, or written \\$")
    return "".join(made)


def _reference(found: re.Match[str], groups: int) -> str:
    escaped, first, more, name = found.groups()
    if escaped is not None:
        return _literal(escaped)
    if name is not None:
        return rf"\g<{name}>"
    number = first
    for digit in more:  # Java takes as many digits as still name a group
        if int(number + digit) > groups:
            break
        number += digit
    rest = (first + more)[len(number) :]
    if int(number) > groups:
        return _literal(f"${first}{more}")
    return rf"\g<{number}>{rest}"


def _literal(text: str) -> str:
    return text.replace("\\", r"\\")

"""Names of users from certificates: Kafka's rules, and Java's way to write a name."""

import re
from contextlib import suppress

import pytest

from qbus.errors import ConfigError
from qbus.security.principals import PrincipalMapper, subject
from tests.support.certificates import self_signed

DUKE = "CN=Duke,OU=ServiceUsers,O=Unknown,L=Unknown,ST=Unknown,C=Unknown"


# The cases of Apache Kafka's SslPrincipalMapperTest, and of KIP-371.
@pytest.mark.parametrize(
    ("rules", "name", "user"),
    [
        ("DEFAULT", DUKE, DUKE),
        ("", DUKE, None),
        (" RULE:^CN=x$/x/ , DEFAULT ", DUKE, DUKE),
        ("RULE:.*/x/", DUKE, "xx"),  # as in Java, the end is matched once more
        ("RULE:^CN=(D)(u)(k)(e),.*$/$4$3$2$1/U", DUKE, "EKUD"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", DUKE, "Duke"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L", DUKE, "duke"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/U", DUKE, "DUKE"),
        ("RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L",
         "CN=DukE,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U",
         "cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        ("RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U, DEFAULT", "OU=sme,CN=duke", "DUKE"),
        ("RULE:^CN=never$/x/,DEFAULT", DUKE, DUKE),
        ("RULE:^CN=([^,]+),.*$/\\$1\\/$1/", DUKE, "$1/Duke"),
        ("RULE:^CN=(?<who>[^,]+),.*$/${who}/", DUKE, "Duke"),
        ("RULE:^CN=(Duke),.*$/$12/", DUKE, "Duke2"),
        ("RULE:^CN=(Duke),.*$/$7/", DUKE, "$7"),
        ("RULE:^CN=([^,]+)\\/([^,]+)$/$2/", "CN=a/b", "b"),
        ("RULE:^CN=([^,]+)/$1/", DUKE, None),  # a rule is for the whole name
        ("RULE:^CN=x$/x/", DUKE, None),
    ],
)  # fmt: skip
def test_the_first_rule_that_applies_names_the_user(
    rules: str, name: str, user: str | None
) -> None:
    assert PrincipalMapper(rules).name(name) == user


@pytest.mark.parametrize(
    "rules",
    [
        "RULE",
        "RULE:",
        "RULE:^CN=(.*?)$",
        "RULE:^CN=(.*?)$/$1",
        "RULE:^CN=(.*?)$/$1/X",
        "RULE:^CN=((.*?)$/$1/",
        "RULE:^CN=(.*?)$/${nobody}/",
        "DEFAULT RULE:^CN=(.*?)$/$1/",
        "RULE:^CN=(.*?)$/$/",
        "default",
        "DEFAULT,,DEFAULT",
    ],
)
def test_rules_of_another_form_are_refused(rules: str) -> None:
    with pytest.raises(ValueError, match=r"RULE:|a pattern"):
        PrincipalMapper(rules)


# As java.security's X500Principal.getName() writes them.
@pytest.mark.parametrize(
    ("attributes", "name"),
    [
        ([("CN", "alice")], "CN=alice"),
        ([("C", "DE"), ("O", "Qbus, Inc."), ("CN", "broker 1")], "CN=broker 1,O=Qbus\\, Inc.,C=DE"),
        ([("CN", ' a+b"c\\d<e>f;g#h=i ')], 'CN=\\ a\\+b\\"c\\\\d\\<e\\>f\\;g\\#h\\=i\\ '),
        ([("DC", "example"), ("UID", "u1"), ("STREET", "s")], "STREET=s,UID=u1,DC=example"),
        ([("CN", "müller")], "CN=müller"),
        ([("EMAIL", "a@b"), ("CN", "x")], "CN=x,1.2.840.113549.1.9.1=#1603614062"),
    ],
)
def test_distinguished_names_are_written_as_java_does(
    attributes: list[tuple[str, str]], name: str
) -> None:
    assert subject(self_signed(attributes)) == name


def test_whatever_the_form_of_a_name_it_is_read_or_refused() -> None:
    der = bytearray(self_signed([("CN", "malformed")]))
    for tag in range(256):
        for found in re.finditer(b"malformed", bytes(der)):
            der[found.start() - 2] = tag  # 3, a string of bits, is what no name is made of
        with suppress(ConfigError):
            assert subject(bytes(der)).startswith(("CN=malformed", "2.5.4.3=#"))


def test_a_certificate_of_an_unknown_version_is_refused() -> None:
    der = self_signed([("CN", "alice")])
    assert subject(der) == "CN=alice"
    version = b"\xa0\x03\x02\x01\x02"
    assert version in der
    with pytest.raises(ConfigError, match="cannot be read"):
        subject(der.replace(version, b"\xa0\x03\x02\x01\x09"))


def test_what_is_no_certificate_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        subject(b"\x30\x03\x02\x01\x01")

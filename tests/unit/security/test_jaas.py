"""Strings of JAAS: the two login modules, and nothing else."""

import pytest

from qbus.errors import ConfigError
from qbus.security.jaas import parse

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.mark.parametrize(
    ("text", "username", "password"),
    [
        (f'{PLAIN} required username="a" password="b";', "a", "b"),
        (f"{SCRAM} required username='a' password='b c';", "a", "b c"),
        (f'{SCRAM}   required\n  username="a"\n  password="x=y;z" ;', "a", "x=y;z"),
        (f'{SCRAM} required password="q\\"\\\\" username=a tokenauth="false";', "a", 'q"\\'),
    ],
)
def test_logins(text: str, username: str, password: str) -> None:
    login = parse(text)
    assert (login.username, login.password) == (username, password)
    assert repr(password) not in repr(login)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the login module is one of"),
        ('com.sun.security.auth.module.Krb5LoginModule required p="hunter2";', "login module"),
        (f'{PLAIN} username="a" password="hunter2";', "expected: MODULE required"),
        (f'{PLAIN} required username="a" password="hunter2"', "expected: MODULE required"),
        (f'{PLAIN} required username="a" password="hunter2;', "quotation mark"),
        (f'{PLAIN} required username "a" password "hunter2";', 'name="value"'),
        (f'{PLAIN} required username="a";', "password is missing"),
    ],
)
def test_what_cannot_be_read_is_not_quoted(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        parse(text)
    assert "hunter2" not in str(caught.value)

"""The table about security in a daemon's TOML."""

from pathlib import Path

import pytest

from qbus.agent.config import parse as parse_agent
from qbus.errors import ConfigError
from qbus.security.client import ClientSecurity
from qbus.security.table import SecurityTable
from qbus.service.toml import to_document, to_toml

AGENT = 'bootstrap = "b:9093"\ntopic = "t"\n[[source]]\npaths = ["/var/log/a"]\n'
SCRAM = """[security]
protocol = "SASL_SSL"
ssl.ca.location = "/ca.pem"
sasl.mechanism = "SCRAM-SHA-512"
sasl.username = "shipper"
sasl.password = "env:SHIPPER"
"""


def read(text: str) -> SecurityTable:
    return parse_agent((AGENT + text).encode()).security


def test_names_are_librdkafkas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHIPPER", "hunter2")
    assert read(SCRAM).security() == ClientSecurity(
        protocol="SASL_SSL",
        ssl_ca_location="/ca.pem",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_username="shipper",
        sasl_password="hunter2",
        sources=(("sasl_password", "env:SHIPPER"),),
    )


def test_nothing_stated_is_not_protected() -> None:
    assert read("").security() == ClientSecurity()


def test_what_is_written_is_read_again() -> None:
    config = parse_agent((AGENT + SCRAM).encode())
    assert parse_agent(to_toml(config).encode()) == config
    assert "security" in to_document(config)


def test_a_file_of_properties_holds_where_the_table_states_nothing(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        "sasl.username=somebody\nsasl.password=hunter2\n"
    )
    table = read(f'[security]\nfile = "{file}"\nsasl.username = "shipper"\n')
    found = table.security()
    assert (found.sasl_username, found.sasl_password) == ("shipper", "hunter2")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SCRAM.replace("env:SHIPPER", "hunter2"), r"security\.sasl\.password: expected file:PATH"),
        ('[security]\nsasl.jaas.config = "hunter2"', r"security\.sasl\.jaas\.config: expected"),
        ('[security]\nprotocol = "TLS"', "security: security.protocol is one of"),
        ("[security]\nssl.ca.location = 7", r"security\.ssl\.ca\.location: expected text"),
        ('[security]\nsasl.usrname = "x"', "did you mean sasl.username"),
        ("security = 7", "expected a table of librdkafka's names"),
    ],
)
def test_what_is_refused_is_not_quoted(text: str, message: str) -> None:
    text = AGENT + text if "[" in text else f"{text}\n{AGENT}"
    with pytest.raises(ConfigError, match=message) as caught:
        parse_agent(text.encode())
    assert "hunter2" not in str(caught.value)

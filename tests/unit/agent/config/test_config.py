"""The configuration of an agent: what it can state, and how the rest is refused."""

from pathlib import Path

import pytest

from qbus.agent.config import AgentConfig, Source, load, parse, to_toml
from qbus.errors import ConfigError
from qbus.service.toml import MAX_BYTES

HEAD = 'bootstrap = "h:9092"\ntopic = "t"\n'
SOURCE = '[[source]]\npaths = ["/var/log/*.log"]\n'


def read(text: str) -> AgentConfig:
    return parse(text.encode())


def only_source(text: str) -> Source:
    (source,) = read(HEAD + SOURCE + text).sources
    return source


def test_few_fields_are_required() -> None:
    config = read(HEAD + SOURCE)
    assert config.bootstrap == "h:9092"
    assert config.sources[0].paths == ("/var/log/*.log",)
    assert config.sources[0].topic == "t"
    assert config.delivery.compression == "lz4"


def test_a_sources_topic_overrides_the_agents() -> None:
    assert only_source('topic = "mine"').topic == "mine"


def test_patterns_are_of_bytes() -> None:
    pattern = only_source(r"multiline_start = '^\d{4}-ü'").multiline_start
    assert pattern is not None
    assert pattern.search("2026-ü".encode())


def test_an_empty_key_means_no_key() -> None:
    assert only_source('key = ""').key is None


def test_a_caller_may_give_defaults() -> None:
    text = b'topic = "t"\n' + SOURCE.encode()
    assert parse(text, defaults={"bootstrap": "zk://z"}).bootstrap == "zk://z"
    stated = b'bootstrap = "h:9"\n' + text
    assert parse(stated, defaults={"bootstrap": "zk://z"}).bootstrap == "h:9"


def test_what_is_written_is_read_back() -> None:
    config = read(
        HEAD
        + SOURCE
        + """
        key = "{host}:{offset}"
        headers = { a = "{path}", "b c" = "100%" }
        multiline_start = '^\\S'
        exclude = ["*.gz"]
        encoding = "utf-16-le"
        [[spool]]
        directory = "/var/spool/qbus"
        [delivery]
        compression_level = -1
        [tailing]
        watch = "poll"
        """
    )
    assert read(to_toml(config)) == config


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "bootstrap is missing: expected host:port"),
        ('bootstrap = "h:9"', "nothing to ship"),
        ('bootstrap = "h:x"\n' + SOURCE, "bootstrap = 'h:x': expected host:port"),
        ('bootstrap = "zk://"\n' + SOURCE, "bootstrap = 'zk://': expected"),
        ('bootstrap = "h:9"\n' + SOURCE, r"source\[1\]\.topic is missing"),
        (HEAD + "[[source]]\n", r"source\[1\]\.paths is missing: expected a list"),
        (HEAD + "[[source]]\npaths = []", r"source\[1\]\.paths = \[\]: expected a list"),
        (HEAD + '[[source]]\npaths = ["a.log"]', "'a.log' does not begin with /"),
        (HEAD + '[[source]]\npaths = "/a.log"', r"source\[1\]\.paths = '/a\.log': expected a list"),
        (HEAD + '[[source]]\npaths = ["/a\\u0000b"]', "NUL"),
        (HEAD + '[source]\npaths = ["/a.log"]', "source = .*: expected tables"),
        (HEAD + SOURCE + "key = 1", r"source\[1\]\.key = 1: expected a template"),
        (HEAD + SOURCE + 'key = "{x}"', r"source\[1\]\.key = '\{x\}': .* is none of host"),
        (HEAD + SOURCE + 'key = "{path"', r"source\[1\]\.key"),
        (HEAD + SOURCE + 'key = "{path!r}"', "a variable is only a name"),
        (HEAD + SOURCE + 'key = "{offset:>9}"', "a variable is only a name"),
        (HEAD + SOURCE + 'key = "{env.}"', "is none of"),
        (HEAD + SOURCE + 'headers = { a = "{x}" }', r"source\[1\]\.headers"),
        (HEAD + SOURCE + 'multiline_start = "("', r"source\[1\]\.multiline_start = '\('"),
        (HEAD + SOURCE + 'encoding = "klingon"', "expected the name of a text encoding"),
        (HEAD + SOURCE + 'encoding = "base64"', "expected the name of a text encoding"),
        (HEAD + SOURCE + "line_limit_bytes = 8", "expected a whole number from 16"),
        (HEAD + SOURCE + "line_limit_bytes = true", "line_limit_bytes = true: expected a whole"),
        (HEAD + SOURCE + "line_limit_bytes = 1e6", "expected a whole number"),
        (HEAD + SOURCE + 'line_limit_bytes = "99"', "expected a whole number"),
        (HEAD + SOURCE + 'line_too_long = "drop"', "one of split, truncate"),
        (HEAD + SOURCE + 'line_limit_bytes = 16\ntruncation_marker = "0123456789abcdef"', "less"),
        (HEAD + SOURCE + "gzip = 1", "gzip = 1: expected true or false"),
        (HEAD + SOURCE + 'topic = "a/b"', r"source\[1\]\.topic = 'a/b': expected the name"),
        (HEAD + SOURCE + "pahts = []", r"source\[1\]\.pahts: no such field; did you mean paths\?"),
        (HEAD + SOURCE + SOURCE + "x = 1", r"source\[2\]\.x: no such field; there are paths, "),
        (HEAD + SOURCE + '[delivery]\ncompression = "br"', "delivery.compression = 'br': expected"),
        (
            HEAD + SOURCE + '[delivery]\ncompression = "snappy"\ncompression_level = 1',
            "delivery.compression_level = 1: compression snappy has no levels",
        ),
        (HEAD + SOURCE + "[delivery]\nacks = 1", "delivery.acks: no such field"),
        (HEAD + "delivery = 3\n" + SOURCE, "delivery = 3: expected a table"),
        (HEAD + '[[spool]]\ndirectory = "x"', r"spool\[1\]\.directory = 'x': expected an absolute"),
        (HEAD + '[[spool]]\ndirectory="/x"\n[[spool]]\ndirectory="/x/"', "it is there twice"),
        ("x = ", "not TOML"),
        ("a = 1\na = 2", "not TOML"),
        ("x = [" * 5000, "not TOML"),
    ],
)
def test_what_is_not_allowed_is_refused_by_name(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        read(text)


def test_invalid_utf8_is_refused() -> None:
    with pytest.raises(ConfigError, match="not TOML"):
        parse(b"\xff\xfe")


def test_a_document_too_large_for_a_node_is_refused() -> None:
    with pytest.raises(ConfigError, match="too long"):
        parse(b"#" * (MAX_BYTES + 1))


def test_a_long_value_is_abbreviated_in_the_error() -> None:
    with pytest.raises(ConfigError) as refusal:
        read(HEAD + SOURCE + f'key = "{"{x}" * 10_000}"')
    assert len(str(refusal.value)) < 1000


def test_a_refused_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "agent.toml"
    with pytest.raises(ConfigError, match=r"cannot read .*agent\.toml: No such file"):
        load(path)
    path.write_text("x = 1")
    with pytest.raises(ConfigError, match=r"agent\.toml: x: no such field"):
        load(path)

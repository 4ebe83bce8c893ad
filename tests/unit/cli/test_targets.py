"""Which cluster is meant, and with which credentials: what is said here counts before elsewhere."""

from pathlib import Path

import click
import pytest

from qbus.cli.contexts import Context, Contexts
from qbus.cli.failures import Failure
from qbus.cli.targets import Said, Target, choose

NOTHING = Said()
HERE = "bootstrap.servers=file:1\nsecurity.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n"
LOGIN = "sasl.username=alice\nsasl.password=secret\n"


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "client.properties"
    path.write_text(HERE + LOGIN)
    return str(path)


@pytest.fixture
def other(tmp_path: Path) -> str:
    path = tmp_path / "other.properties"
    path.write_text(HERE.replace("file:1", "other:1") + LOGIN.replace("alice", "bob"))
    return str(path)


def contexts(**known: Context) -> Contexts:
    return Contexts(known, next(iter(known), None), Path("/none"))


def chosen(
    bootstrap: Said = NOTHING,
    context: Said = NOTHING,
    command_config: Said = NOTHING,
    known: Contexts | None = None,
) -> tuple[str, str | None]:
    """The bootstrap, and who logs in there."""
    target = choose(bootstrap, context, command_config, lambda: known or contexts())
    return target.bootstrap, target.security.sasl_username if target.security else None


def here(value: str) -> Said:
    return Said(value, here=True)


def test_without_a_word_it_is_this_machine_in_the_clear() -> None:
    assert choose(NOTHING, NOTHING, NOTHING, contexts) == Target("127.0.0.1:9092")
    assert Target("a:1").options == {}


def test_a_file_says_where_and_how(file: str) -> None:
    assert chosen(command_config=here(file)) == ("file:1", "alice")
    assert chosen(command_config=Said(file)) == ("file:1", "alice")


def test_the_file_s_brokers_are_a_default_only(file: str) -> None:
    assert chosen(here("b:1"), command_config=here(file)) == ("b:1", "alice")
    assert chosen(Said("env:1"), command_config=Said(file)) == ("env:1", "alice")


def test_a_file_named_here_counts_before_a_bootstrap_of_the_environment(file: str) -> None:
    assert chosen(Said("env:1"), command_config=here(file)) == ("env:1", "alice")


def test_a_context_has_a_file_of_its_own(file: str, other: str) -> None:
    known = contexts(prod=Context("p:1", command_config=file))
    assert chosen(known=known) == ("p:1", "alice")
    assert chosen(context=here("prod"), known=known) == ("p:1", "alice")
    assert chosen(context=here("prod"), command_config=here(other), known=known) == ("p:1", "bob")
    assert chosen(context=here("prod"), command_config=Said(other), known=known) == ("p:1", "alice")


def test_the_password_of_a_context_goes_to_no_other_cluster(file: str) -> None:
    known = contexts(prod=Context("p:1", command_config=file), plain=Context("q:1"))
    assert chosen(here("b:1"), known=known) == ("b:1", None)
    assert chosen(Said("env:1"), known=known) == ("env:1", None)
    assert chosen(context=here("plain"), known=known) == ("q:1", None)


def test_a_file_without_brokers_goes_with_the_context_in_use(tmp_path: Path) -> None:
    path = tmp_path / "p"
    path.write_text(f"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n{LOGIN}")
    known = contexts(prod=Context("p:1"))
    assert chosen(command_config=Said(str(path)), known=known) == ("p:1", "alice")
    assert chosen(command_config=here(str(path))) == ("127.0.0.1:9092", "alice")


def test_one_cluster_is_named_once() -> None:
    with pytest.raises(click.UsageError, match="Name either --bootstrap or --context"):
        chosen(here("b:1"), here("prod"))


def test_a_missing_file_says_who_writes_one() -> None:
    with pytest.raises(Failure, match=r"/none: there is no such file.*cluster up --secure"):
        chosen(command_config=here("/none"))

"""Where daemons serve metrics, and to whom."""

import asyncio
import logging
from http import HTTPStatus
from pathlib import Path

import pytest

from qbus.config import Address
from qbus.errors import ConfigError
from qbus.security.scram import ScramCredential, ScramMechanism
from qbus.service.http import Caller
from qbus.service.metrics_page import UsersFile, metrics_page
from tests.support.secure_broker import certificates


def users_file(tmp_path: Path, *lines: str, mode: int = 0o600) -> Path:
    path = tmp_path / "users"
    path.write_text("".join(f"{line}\n" for line in lines))
    path.chmod(mode)
    return path


class TestUsers:
    def test_have_passwords_in_clear_or_hashed(self, tmp_path: Path) -> None:
        hashed = ScramCredential.from_password(ScramMechanism.SHA_256, "b:c")
        path = users_file(tmp_path, "# who scrapes", "", "alice:a:b", f"bob:{hashed.encode()}")
        users = UsersFile(path)
        assert users.check("alice", "a:b")
        assert users.check("bob", "b:c")
        for user, password in (("alice", "a"), ("bob", hashed.encode()), ("carol", ""), ("", "")):
            assert not users.check(user, password)

    def test_are_read_again_when_they_change(self, tmp_path: Path) -> None:
        path, now = users_file(tmp_path, "alice:old"), [0.0]
        users = UsersFile(path, lambda: now[0])
        users_file(tmp_path, "alice:newer")
        assert users.check("alice", "old"), "not more than once a second"
        now[0] = 2.0
        assert users.check("alice", "newer")
        assert not users.check("alice", "old")

    def test_stay_when_the_file_cannot_be_used(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        path, now = users_file(tmp_path, "alice:secret"), [0.0]
        users = UsersFile(path, lambda: now[0])
        users_file(tmp_path, "alice:changed", mode=0o644)
        now[0] = 2.0
        with caplog.at_level(logging.ERROR):
            assert users.check("alice", "secret")
        assert "chmod 600" in caplog.text
        assert "changed" not in caplog.text

    @pytest.mark.parametrize(
        ("lines", "mode", "why"),
        [
            (("alice:x",), 0o640, "others can read it"),
            (("alice",), 0o600, "line 1: expected user:password"),
            (("", "alice:salt=x"), 0o600, "line 2: not a SCRAM credential"),
        ],
    )
    def test_that_cannot_be_used(
        self, tmp_path: Path, lines: tuple[str, ...], mode: int, why: str
    ) -> None:
        with pytest.raises(ConfigError, match=why):
            UsersFile(users_file(tmp_path, *lines, mode=mode))

    def test_that_are_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="No such file"):
            UsersFile(tmp_path / "none")

    async def test_decide(self, tmp_path: Path) -> None:
        users = UsersFile(users_file(tmp_path, "alice:right"))
        loop = asyncio.get_running_loop()
        assert await users.decide(Caller("h")) is HTTPStatus.UNAUTHORIZED
        assert await users.decide(Caller("h", "alice", "right")) is HTTPStatus.OK
        started = loop.time()
        assert await users.decide(Caller("h", "alice", "wrong")) is HTTPStatus.UNAUTHORIZED
        assert loop.time() - started >= 0.1


class TestPages:
    def test_on_this_machine_need_nothing(self) -> None:
        page = metrics_page("127.0.0.1:9404")
        assert page.address == Address("127.0.0.1", 9404)
        assert page.security == (None, None, "")

    @pytest.mark.parametrize("listen", ["0.0.0.0:9404", "http://10.0.0.1:9404", ":9404"])
    def test_that_others_reach_are_refused_without_users(self, listen: str) -> None:
        with pytest.raises(ConfigError, match=r"users\.location=FILE in --metrics-config"):
            metrics_page(listen)

    def test_unless_that_is_said(self, tmp_path: Path) -> None:
        config = tmp_path / "metrics.properties"
        config.write_text("allow.insecure=true\n")
        assert metrics_page("0.0.0.0:9404", config).security.decide is None

    def test_with_users_and_tls(self, tmp_path: Path) -> None:
        made = certificates()
        config = tmp_path / "metrics.properties"
        config.write_text(
            f"users.location={users_file(tmp_path, 'alice:x')}\n"
            f"ssl.certificate.location={made.server}\nssl.key.location={made.server_key}\n"
        )
        _, security = metrics_page("https://0.0.0.0:9404", config)
        assert security.decide is not None
        assert security.tls is not None
        security.tls()

    @pytest.mark.parametrize(
        ("listen", "text", "why"),
        [
            ("https://127.0.0.1:1", "", "needs ssl.certificate.location"),
            ("127.0.0.1:1", "users.locaton=x", "did you mean users.location"),
            ("https://127.0.0.1:1", "ssl.certificate.location=/none", "/none: No such file"),
        ],
    )
    def test_that_make_no_sense(self, tmp_path: Path, listen: str, text: str, why: str) -> None:
        config = tmp_path / "metrics.properties"
        config.write_text(f"{text}\n")
        with pytest.raises(ConfigError, match=why):
            metrics_page(listen, config)

    @pytest.mark.parametrize("listen", ["9404", "ftp://h:1", "h"])
    def test_addresses_have_a_form(self, listen: str) -> None:
        with pytest.raises(ValueError, match="host:port"):
            metrics_page(listen)

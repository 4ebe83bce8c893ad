"""What the tests of commands share: nobody says how wide a terminal is, and there is none."""

import pytest


@pytest.fixture(autouse=True)
def no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)

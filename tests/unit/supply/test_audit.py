"""The audit of pinned packages against advisories in files."""

import json
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.request import Request, urlopen

import pytest

_SCRIPT = Path(__file__).parents[3] / ".ci" / "audit"


@pytest.fixture(scope="module")
def audit() -> ModuleType:
    loader = SourceFileLoader("audit_of_packages", str(_SCRIPT))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def advisory(name: str = "Some_Package", **affected: Any) -> dict[str, Any]:
    of = {"package": {"name": name, "ecosystem": "PyPI"}, **affected}
    return {"id": "TEST-1", "modified": "2025-01-01T00:00:00Z", "affected": [of]}


def ranges(*events: dict[str, str]) -> list[dict[str, Any]]:
    return [{"type": "ECOSYSTEM", "events": list(events)}]


@pytest.mark.parametrize(
    ("version", "is_affected"),
    [("1.9", False), ("2.0", True), ("2.10.1", True), ("2.31", False), ("3.0rc1", True)],
)
def test_versions_between_events_are_affected(
    audit: ModuleType, version: str, is_affected: bool
) -> None:
    events = ({"fixed": "2.31"}, {"introduced": "2.0"}, {"introduced": "3.0a1"})
    one = advisory("a", ranges=ranges(*events))
    assert audit.affects(one, "a", version) is is_affected
    assert not audit.affects(one, "b", version)


def test_so_are_those_up_to_the_last_and_those_that_are_listed(audit: ModuleType) -> None:
    one = advisory("a", ranges=ranges({"introduced": "0"}, {"last_affected": "1.5"}))
    assert audit.affects(one, "a", "1.5")
    assert not audit.affects(one, "a", "1.6")
    assert audit.affects(advisory("a", versions=["7"]), "a", "7")


def test_it_answers_as_osv_does(audit: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "TEST-1.json").write_text(json.dumps(advisory(versions=["1.0"])))
    server = audit.serve(audit.read(tmp_path))
    try:
        answers = [ask(server.server_port, version) for version in ("1.0", "2.0")]
    finally:
        server.shutdown()
        server.server_close()
    assert [one["id"] for one in answers[0]["vulns"]] == ["TEST-1"]
    assert answers[1] == {}


def ask(port: int, version: str) -> Any:
    question = {"package": {"name": "some-package", "ecosystem": "PyPI"}, "version": version}
    request = Request(f"http://127.0.0.1:{port}/v1/query", json.dumps(question).encode())
    with urlopen(request, timeout=10) as answer:
        return json.load(answer)


def test_without_advisories_nothing_is_proven(audit: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="expected advisories of OSV"):
        audit.read(tmp_path)

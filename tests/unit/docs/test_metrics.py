"""Each metric that a broker registers by its name has its row in the documentation.

Those of followers, which a broker alone does not serve, are in docs/cluster.md.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
REGISTERED = re.compile(r"\.(counter|gauge|timing)\(\s*\"(\w+)\"")
SUFFIXES = {"counter": "_total", "gauge": "", "timing": ""}


def registered() -> dict[str, str]:
    """Where each metric is registered, by its name on the page."""
    return {
        f"qbus_{name}{SUFFIXES[kind]}": str(path.relative_to(ROOT))
        for path in sorted((ROOT / "broker").rglob("*.py"))
        for kind, name in REGISTERED.findall(path.read_text())
    }


def test_there_are_metrics() -> None:
    assert len(registered()) > 50
    assert "qbus_descriptor_shortages_total" in registered()


@pytest.mark.parametrize(("name", "where"), registered().items())
def test_it_is_documented(name: str, where: str) -> None:
    pages = ("docs/operations.md", "docs/cluster.md")
    text = "".join((ROOT / page).read_text() for page in pages)
    assert re.search(rf"`{name}[`{{]", text), f"{name} of {where} has no row"

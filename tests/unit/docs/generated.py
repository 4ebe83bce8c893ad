"""The parts of the documentation that are made from the code.

A part stands between ``<!-- generated: NAME -->`` and ``<!-- end -->``. ``make docs`` writes them
all anew; the test beside this file says when that is due.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType

import click

from qbus.agent import config as agent_config
from qbus.cli.root import qbus
from qbus.clients.mirror import config as mirror_config
from qbus.clients.pipelines import config as pipeline_config
from qbus.config import BROKER_CONFIG, SHARE_GROUP_CONFIG, TOPIC_CONFIG, ConfigKey
from qbus.service.toml import Setting, settings_of
from qbus.wire import API, ApiKey

from .pictures import draw_outdated
from .sdk import codes_table, errors_table, methods_table, options_table

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
PROSE = [
    *DOCS.rglob("*.md"),
    *(
        ROOT / f"{name}.md"
        for name in ("README", "ARCHITECTURE", "CONTRIBUTING", "CHANGELOG", "SECURITY")
    ),
]
"""Every page of the documentation."""

_PART = re.compile(r"(<!-- generated: (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)
_WIDTH = 96


def generated(text: str) -> str:
    """Return a page with its generated parts as they should be."""
    return _PART.sub(lambda part: f"{part[1]}\n{_content(part[2])}\n{part[3]}", text)


def pages() -> Iterator[Path]:
    """Yield the pages that have generated parts."""
    for page in [ROOT / "ARCHITECTURE.md", *sorted(DOCS.rglob("*.md"))]:
        if _PART.search(page.read_text()):
            yield page


def _content(name: str) -> str:
    kind, _, argument = name.partition(" ")
    return _KINDS[kind](argument)


def _apis(_: str) -> str:
    rows = ["| key | API | versions |", "|---|---|---|"]
    for key, api in sorted(API.items()):
        low = 0 if key is ApiKey.PRODUCE else api.min_version
        name = "".join(word.capitalize() for word in key.name.split("_"))
        rows.append(f"| {int(key)} | {name} | {low}-{api.max_version} |")
    return "\n".join([*rows, ""])


def _settings(which: str) -> str:
    keys: Mapping[str, ConfigKey] = {
        "topic": TOPIC_CONFIG,
        "broker": BROKER_CONFIG,
        "share group": SHARE_GROUP_CONFIG,
    }[which]
    rows = ["| setting | default | values | what it is |", "|---|---|---|---|"]
    for name, key in sorted(keys.items()):
        fixed = " Takes effect at start only." if key.static else ""
        rows.append(f"| `{name}` | {_default(key)} | {key.allowed} | {key.doc}{fixed} |")
    return "\n".join([*rows, ""])


def _default(key: ConfigKey) -> str:
    if key.default is None:
        return "not set"
    text = key.format(key.default)
    return f"`{text}`" if text else "empty"


def _fields(package: ModuleType) -> Callable[[str], str]:
    """Tables of the fields of a daemon's configuration, by the names of its classes."""
    return lambda table: _table_of(getattr(package, table))


def _table_of(kind: type) -> str:
    rows = ["| field | default | values | what it is |", "|---|---|---|---|"]
    for name, field in settings_of(kind).items():
        allowed = field.rule.allowed.replace("[[...]]", "`[[...]]`")
        default = "required" if field.is_required else _toml(field)
        rows.append(f"| `{name}` | {default} | {allowed} | {field.doc} |")
    return "\n".join([*rows, ""])


def _toml(field: Setting) -> str:
    if field.rule.nested is not None or field.default in {None, "", ()}:
        return "not set"
    return f"`{json.dumps(field.rule.write(field.default))}`"


def _help(path: str) -> str:
    command: click.Command = qbus
    context = click.Context(
        command,
        info_name="qbus",
        terminal_width=_WIDTH,
        max_content_width=_WIDTH,
        help_option_names=["-h", "--help"],
    )
    for name in path.split():
        assert isinstance(command, click.Group)
        found = command.get_command(context, name)
        assert found is not None, f"there is no command {path}"
        command = found
        context = click.Context(command, info_name=name, parent=context)
    return f"```\n{command.get_help(context)}\n```\n"


_KINDS: dict[str, Callable[[str], str]] = {
    "apis": _apis,
    "settings": _settings,
    "agent": _fields(agent_config),
    "mirror": _fields(mirror_config),
    "pipeline": _fields(pipeline_config),
    "help": _help,
    "options": options_table,
    "methods": methods_table,
    "errors": lambda _: errors_table(),
    "codes": lambda _: codes_table(),
}


def main() -> None:
    """Write every page and every outdated picture anew."""
    for page in pages():
        page.write_text(generated(page.read_text()))
    draw_outdated()


if __name__ == "__main__":
    main()

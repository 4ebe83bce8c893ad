"""No two modules import each other, by whatever way: a module can be read, and moved, by itself.

Imports within functions and for type checkers count as well: they hide a circle, they do not end
it. What :func:`importlib.import_module` loads by name does not: those are plug-ins.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import qbus

ROOT = Path(qbus.__file__).parents[1]


def modules() -> dict[str, Path]:
    """Every module by its dotted name; what is compiled has no imports of its own to read."""
    found = {}
    for folder in ("", "broker", "clients", "agent"):  # the last three are links
        for path in (ROOT / "qbus" / folder).glob("**/*.py*"):
            if path.suffix in {".py", ".pyx"}:
                found[_name(path)] = path
    return found


def _name(path: Path) -> str:
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    return name.removesuffix(".__init__")


def imports(name: str, path: Path, known: dict[str, Path]) -> Iterator[str]:
    """Yield the modules that a module imports."""
    if path.suffix == ".pyx":
        return
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            home = node.module or ""
            if node.level:
                parts = package.split(".")
                above = ".".join(parts[: len(parts) - node.level + 1])
                home = f"{above}.{home}" if home else above
            for alias in node.names:
                full = f"{home}.{alias.name}"
                if full in known:
                    yield full
                elif home in known:
                    yield home


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that reach each other: Tarjan's components of more than one."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in graph[name]:
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            component = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(component) > 1:
                found.append(sorted(component))

    for name in graph:
        if name not in index:
            visit(name)
    return found


def test_there_are_no_circles() -> None:
    known = modules()
    assert len(known) > 500, "the links below qbus/ are read"
    graph = {name: set(imports(name, path, known)) - {name} for name, path in known.items()}
    assert circles(graph) == []


def test_a_circle_would_be_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}
    assert circles(graph) == [["b", "c"]]

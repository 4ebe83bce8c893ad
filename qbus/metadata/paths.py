"""Paths of nodes: ``/`` and ``/name/name...``, as in ZooKeeper."""

ROOT = "/"


def split(path: str) -> tuple[str, str]:
    """Return the parent's path (``""`` above the root) and the node's name."""
    parent, _, name = path.rpartition("/")
    if name:
        return parent or ROOT, name
    return "", ""


def join(parent: str, name: str) -> str:
    """Return the path of ``name`` below ``parent``."""
    if not name:
        return ROOT
    return f"/{name}" if parent == ROOT else f"{parent}/{name}"


def check(path: str) -> None:
    """Check that every store accepts this path.

    Raises:
        ValueError: it is not a path.
    """
    if (
        (  # as nearly all are: this is cheap
            path[:1] == "/"
            and path[-1] != "/"
            and "//" not in path
            and "/." not in path
            and path.isprintable()
        )
        or path == ROOT
    ):
        return
    first, *names = path.split("/")
    if first or not names or any(name in {"", ".", ".."} for name in names):
        raise ValueError(f"not a path: {path!r}")
    if not path.isprintable():
        raise ValueError(f"a path that cannot be printed: {path!r}")

"""A source: how its files are framed, and the keys and headers of their records."""

import os
from collections.abc import Sequence
from dataclasses import replace

from ..config import Bound, Source, Tailing
from ..config.config import TRUNCATE
from ..positions.positions import Positions
from .framing import Framer, Grouping
from .text import Encoding

Headers = Sequence[tuple[str, bytes]]


class Labels:
    """The keys and headers of one file's records."""

    __slots__ = ("_headers", "_key")

    def __init__(self, key: Bound | None, headers: Sequence[tuple[str, Bound]]) -> None:
        self._key = key
        self._headers = headers

    def keys(self, offsets: Sequence[int]) -> list[bytes] | None:
        """Return the key of the record at each offset."""
        return None if self._key is None else self._key.render_all(offsets)

    def headers(self, offsets: Sequence[int]) -> list[Headers] | None:
        """Return the headers of the record at each offset."""
        if not self._headers:
            return None
        if all(bound.constant is not None for _, bound in self._headers):
            return [[(name, bound.render(0)) for name, bound in self._headers]] * len(offsets)
        columns = [bound.render_all(offsets) for _, bound in self._headers]
        names = [name for name, _ in self._headers]
        return [list(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


class SourceReader:
    """A source and what its files need. ``host`` is the value of ``{host}``."""

    def __init__(self, config: Source, tailing: Tailing, positions: Positions, host: str) -> None:
        self.config = config
        self.positions = positions
        self.fingerprint_bytes = tailing.fingerprint_bytes
        self.reads_gzip = config.gzip
        self.truncations = 0
        """How often its files were truncated or written over."""
        self._host = host
        every = [template for _, template in config.headers]
        self._templates = every if config.key is None else [*every, config.key]
        marker = config.truncation_marker.encode()
        start = config.multiline_start
        framer = Framer(
            limit=config.line_limit_bytes,
            marker=marker if config.line_too_long == TRUNCATE else None,
            encoding=Encoding.of(config.encoding),
            grouping=None if start is None else Grouping(start, config.multiline_max_lines),
            wants_offsets=bool(self._templates),
        )
        self.may_have_mark = Encoding.may_have_mark(config.encoding)
        self._framers: dict[Encoding, Framer] = {framer.encoding: framer}
        self._framer = framer

    @property
    def topic(self) -> str:
        """The topic of its records."""
        return self.config.topic

    @property
    def name(self) -> str:
        """Its name in the journal of positions."""
        return "\n".join((self.topic, *self.config.paths))

    def framer(self, head: bytes) -> Framer:
        """Return the framer of a file that begins with ``head``."""
        encoding = Encoding.of(self.config.encoding, head)
        framer = self._framers.get(encoding)
        if framer is None:
            framer = self._framers[encoding] = replace(self._framer, encoding=encoding)
        return framer

    def labels(self, path: str, inode: int) -> Labels | None:
        """Return the keys and headers of a file's records; None: they have none."""
        templates = self._templates
        if not templates:
            return None
        values: dict[str, str | bytes | int] = {
            "host": self._host,
            "path": path,
            "name": os.path.basename(path),  # noqa: PTH119 - as bytes may be in it
            "inode": inode,
        }
        for template in templates:
            for name in template.environment:
                values[f"env.{name}"] = os.environ.get(name, "")
        key = None if self.config.key is None else self.config.key.bind(values)
        return Labels(
            key, [(name, template.bind(values)) for name, template in self.config.headers]
        )

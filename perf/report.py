"""Figures in pairs, and the table that shows them."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table


@dataclass
class Figure:
    """One thing measured in turn on Qbus and on its peer; pairs belong together."""

    case: str
    unit: str
    qbus: list[float] = field(default_factory=list)
    peer: list[float] = field(default_factory=list)
    lower_is_better: bool = False

    def add(self, server: str, value: float) -> None:
        """One more measurement, of the server of this name."""
        (self.qbus if server == "qbus" else self.peer).append(value)

    @property
    def ratio(self) -> float | None:
        """The median over the pairs of Qbus to peer."""
        pairs = [q / p for q, p in zip(self.qbus, self.peer, strict=False) if p]
        return median(pairs) if pairs else None


def show(title: str, figures: Iterable[Figure]) -> None:
    """Print the figures as a table."""
    table = Table(title=title, title_justify="left")
    for name, justify in (("case", "left"), ("unit", "left"), ("Qbus", "right"), ("peer", "right")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type] # the literals above
    table.add_column("Qbus / peer", justify="right")
    for figure in figures:
        ratio = figure.ratio
        better = "(lower is better)" if figure.lower_is_better else ""
        table.add_row(
            figure.case,
            f"{figure.unit} {better}".strip(),
            _middle(figure.qbus),
            _middle(figure.peer),
            "-" if ratio is None else f"{ratio:.2f}",
        )
    Console().print(table)


def write_json(path: Path, results: dict[str, list[Figure]]) -> None:
    """Keep every single figure."""
    data = {
        name: [{**asdict(figure), "ratio": figure.ratio} for figure in figures]
        for name, figures in results.items()
    }
    path.write_text(json.dumps(data, indent=1))


def write_markdown(path: Path, results: dict[str, list[Figure]], command: str) -> None:
    """Write the tables as they stand in this folder's README."""
    lines: list[str] = []
    for name, figures in results.items():
        lines += [f"`{command.format(name)}`", "", "| case | unit | Qbus | peer | ratio |"]
        lines.append("|---|---|---|---|---|")
        for figure in figures:
            ratio = "-" if figure.ratio is None else f"{figure.ratio:.2f}"
            values = f"{_middle(figure.qbus)} | {_middle(figure.peer)}"
            lines.append(f"| {figure.case} | {figure.unit} | {values} | {ratio} |")
        lines.append("")
    path.write_text("\n".join(lines))


def _middle(values: list[float]) -> str:
    if not values:
        return "-"
    return f"{median(values):,.{0 if median(values) >= 100 else 2}f}"

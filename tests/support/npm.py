"""Packages of npm, for clients in JavaScript that no one here wrote."""

import hashlib
import os
import subprocess
import tempfile
from functools import cache
from pathlib import Path


@cache
def packages(directory: Path) -> Path | None:
    """The directory of what ``directory``'s ``package.json`` names; None: npm cannot fetch it.

    They stay in the user's cache directory.
    """
    wanted = (directory / "package.json").read_bytes()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    digest = hashlib.sha256(wanted).hexdigest()[:16]
    target = Path(base) / "qbus" / f"{directory.name}-{digest}"
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as work:
            Path(work, "package.json").write_bytes(wanted)
            npm = ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock"]
            try:
                subprocess.run(npm, cwd=work, capture_output=True, check=True, timeout=150)
            except subprocess.SubprocessError:
                return None
            # Whole or not at all; of two processes that install at once the first one's stays.
            if not target.is_dir():
                Path(work, "node_modules").rename(target)
    return target

"""Following files: which there are, what happens to them, and records out of their bytes."""

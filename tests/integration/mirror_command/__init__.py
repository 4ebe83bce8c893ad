"""`qbus mirror` as users run it."""

"""`qbus queue`."""

"""`qbus group`: administers consumer groups."""

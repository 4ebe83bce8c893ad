"""`qbus user`: who may log in, with which passwords."""

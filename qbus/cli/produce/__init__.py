"""`qbus produce`: sends lines to a topic."""

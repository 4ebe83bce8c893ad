"""`qbus consume`: prints the records of a topic."""

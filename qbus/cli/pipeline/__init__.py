"""`qbus pipeline`: jobs on Spark."""

"""Writing from Spark: rows to topics, each once for every micro-batch, whatever is killed."""

"""`qbus pipeline`: ready pipelines on Spark."""

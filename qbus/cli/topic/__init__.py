"""`qbus topic`: administers topics."""

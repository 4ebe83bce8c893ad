"""`qbus broker` and `qbus broker-config`."""

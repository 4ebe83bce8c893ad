"""`qbus demo`: a log file through a broker of its own, and every byte compared."""

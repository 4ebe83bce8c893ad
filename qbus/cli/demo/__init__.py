"""`qbus demo`: sends a log file through a temporary broker and compares every byte."""

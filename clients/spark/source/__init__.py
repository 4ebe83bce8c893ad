"""The source: reads topics as data frames, in batch and streaming queries."""

"""The source: topics as data frames, batch and streaming."""

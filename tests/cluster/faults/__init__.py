"""Real faults on real processes, under load, with a checker of what the clients saw."""

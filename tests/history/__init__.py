"""What producers and consumers saw of a real run, and whether a correct log can have shown it.

Every value is unique, so that each record can be told from every other. ``history`` is what
happened, ``checker`` what is wrong with it; ``clients`` record it, and ``load`` keeps them busy
until it is told to stop.
"""

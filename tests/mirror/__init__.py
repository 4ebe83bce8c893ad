"""IDCs on one machine, far from each other, and the mirrors between them."""

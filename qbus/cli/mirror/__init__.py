"""`qbus mirror`: copying topics from other IDCs, seeing how that goes, moving groups."""

"""The pipeline ``stats``, for ``spark-submit``."""

from ..submitted import main

if __name__ == "__main__":
    main("stats")

"""The pipeline ``abuse``, for ``spark-submit``."""

from ..submitted import main

if __name__ == "__main__":
    main("abuse")

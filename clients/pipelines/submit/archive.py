"""The pipeline ``archive``, for ``spark-submit``."""

from ..submitted import main

if __name__ == "__main__":
    main("archive")

# syntax=docker/dockerfile:1
# Spark with Qbus's format, for drivers, masters and workers alike. Build from the repository's root:
#   docker build -f docker/spark.Dockerfile -t qbus-spark .

FROM python:3.12-slim AS build
WORKDIR /src
COPY requirements requirements
RUN pip install --no-cache-dir --require-hashes --requirement requirements/build.txt \
    && pip wheel --no-cache-dir --require-hashes --no-deps --wheel-dir /wheels \
        --requirement requirements/spark.txt
COPY . .
RUN pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels .

FROM python:3.12-slim
RUN apt-get update \
    && apt-get install --yes --no-install-recommends default-jre-headless procps \
    && rm -rf /var/lib/apt/lists/*
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-index --no-deps /wheels/*.whl \
    && pip uninstall --yes pip \
    && useradd --system --uid 1000 --home-dir /var/lib/spark --create-home \
        --shell /usr/sbin/nologin spark

# Spark is what pip has installed; executors run this image's Python, which has Qbus.
ENV PYTHONDONTWRITEBYTECODE=1 \
    SPARK_HOME=/usr/local/lib/python3.12/site-packages/pyspark \
    PYSPARK_PYTHON=/usr/local/bin/python3
ENV PATH=$SPARK_HOME/bin:$PATH

USER spark
WORKDIR /var/lib/spark
# Checkpoints and files: the same for drivers and executors.
VOLUME /var/lib/spark
# The master, its page, and that of an application.
EXPOSE 7077 8080 4040
ENTRYPOINT ["spark-class"]
CMD ["org.apache.spark.deploy.master.Master", "--port", "7077", "--webui-port", "8080"]

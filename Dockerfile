# The service and its command line: docker build --tag benchlock .
# A worker measures with the engine of its own host, and is installed there instead.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS built
RUN python3 -m venv --copies /opt/benchlock
WORKDIR /src
COPY requirements/runtime.txt requirements/
RUN /opt/benchlock/bin/python -m pip install --no-cache-dir --require-hashes --requirement requirements/runtime.txt
COPY pyproject.toml setup.py README.md LICENSE ./
COPY api api
COPY artifacts artifacts
COPY evaluator evaluator
COPY migrations migrations
COPY registry registry
COPY benchlock benchlock
ARG BENCHLOCK_COMMIT=
RUN /opt/benchlock/bin/python -m pip install --no-cache-dir --no-deps --no-build-isolation .

FROM ${BASE}
COPY --from=built /opt/benchlock /opt/benchlock
RUN useradd --uid 10001 --home-dir /srv/registry --create-home benchlock
ENV PATH=/opt/benchlock/bin:$PATH BENCHLOCK_REGISTRY=/srv/registry
USER benchlock
VOLUME /srv/registry
EXPOSE 8080
HEALTHCHECK --start-period=30s CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8080/v1/ready', timeout=9)"]
ENTRYPOINT ["benchlock"]
CMD ["serve", "--host", "0.0.0.0", "--port", "8080"]

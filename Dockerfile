# The images of the broker and of the operator: Python, and wheels that were built before or are built here.
#   docker build --target broker --tag penstock:0.1.0 .
#   docker build --target operator --tag penstock-operator:0.1.0 .
# With --build-arg WHEELS=dist they take the wheels that `make wheels` has put into dist/, and need no network.

ARG PYTHON_IMAGE=python:3.11-slim-bookworm
ARG RUST_IMAGE=rust:slim-bookworm
ARG WHEELS=build

FROM ${RUST_IMAGE} AS wheels-build
RUN apt-get update \
 && apt-get install --yes --no-install-recommends python3 python3-venv \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /build
COPY Cargo.toml Cargo.lock pyproject.toml requirements.lock README.md LICENSE NOTICE ./
COPY broker broker
COPY operator operator
COPY tools/build_wheels.sh tools/
RUN python3 -m venv .venv \
 && .venv/bin/pip install --no-cache-dir 'maturin>=1.16,<2' \
 && tools/build_wheels.sh /wheels

FROM scratch AS wheels-dist
COPY dist/*.whl /wheels/

FROM wheels-${WHEELS} AS wheels

# What is installed is laid out here, so that neither wheels nor a compiler end up in the images.
FROM ${PYTHON_IMAGE} AS broker-packages
COPY --from=wheels /wheels /wheels
COPY tools/make_sbom.py /
RUN python3 -m pip install --no-index --find-links /wheels --no-compile --target /packages 'penstock[s3]' \
 && python3 /make_sbom.py --packages /packages --root penstock --output /sbom/penstock.cdx.json \
 && python3 -m compileall -q --invalidation-mode unchecked-hash /packages

FROM ${PYTHON_IMAGE} AS operator-packages
COPY --from=wheels /wheels /wheels
COPY tools/make_sbom.py /
RUN python3 -m pip install --no-index --find-links /wheels --no-compile --target /packages penstock-operator \
 && python3 /make_sbom.py --packages /packages --root penstock-operator --output /sbom/penstock-operator.cdx.json \
 && python3 -m compileall -q --invalidation-mode unchecked-hash /packages

FROM ${PYTHON_IMAGE} AS operator
COPY --from=operator-packages /packages /packages
COPY --from=operator-packages /sbom /usr/share/sbom
ENV PYTHONPATH=/packages \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 10001:10001
EXPOSE 8080
ENTRYPOINT ["python3", "-m", "penstock_operator"]

FROM ${PYTHON_IMAGE} AS broker
COPY --from=broker-packages /packages /packages
COPY --from=broker-packages /sbom /usr/share/sbom
# The root is read-only where it runs, so /data is a volume of its own.
RUN mkdir -m 0777 /data
ENV PATH=/packages/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONPATH=/packages \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    PENSTOCK_DATA_DIR=/data \
    PENSTOCK_GRPC=0.0.0.0:5680 \
    PENSTOCK_AMQP=0.0.0.0:5672 \
    PENSTOCK_METRICS=0.0.0.0:15692
USER 10001:10001
VOLUME /data
# gRPC; AMQP; health and metrics.
EXPOSE 5680 5672 15692
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s \
    CMD ["python3", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:15692/health/ready', timeout=2)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["python3", "/packages/bin/penstock"]
CMD ["serve"]

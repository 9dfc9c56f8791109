# Two stages: the wheel is built with Rust and maturin, the broker's image has Python and the wheel alone.
#   docker build --tag penstock .
#   docker run --publish 5680:5680 --volume penstock:/data penstock

FROM rust:slim-bookworm AS build
RUN apt-get update \
 && apt-get install --yes --no-install-recommends python3 python3-venv \
 && rm -rf /var/lib/apt/lists/* \
 && python3 -m venv /venv \
 && /venv/bin/pip install --no-cache-dir 'maturin>=1.16,<2'
WORKDIR /build
COPY Cargo.toml Cargo.lock pyproject.toml requirements.lock README.md LICENSE NOTICE ./
COPY broker broker
RUN /venv/bin/maturin build --release --out dist

FROM python:3.11-slim-bookworm
COPY --from=build /build/dist/*.whl /build/requirements.lock /tmp/
# The lock names tools as well; as constraints it only fixes the versions of what the wheel asks for.
RUN pip install --no-cache-dir --constraint /tmp/requirements.lock /tmp/*.whl \
 && rm /tmp/*.whl /tmp/requirements.lock \
 && useradd --system --uid 10001 --user-group penstock \
 && install --directory --owner penstock --group penstock /data
USER penstock
VOLUME /data
# gRPC; health and metrics.
EXPOSE 5680 15692
ENV PENSTOCK_DATA_DIR=/data \
    PENSTOCK_GRPC=0.0.0.0:5680 \
    PENSTOCK_METRICS=0.0.0.0:15692
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:15692/health/ready', timeout=2)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["penstock"]
CMD ["serve"]

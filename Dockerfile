# The image that the manifests of `highway launch --on kubernetes` name: highway with its fast decoders, for CPUs.
#
#     docker build -t registry.example.org/highway:0.1.0 .
#
# Modules of your own, which files name with --plugin, go on top: FROM this image, and `RUN /opt/highway/bin/pip install ...` as USER root.

FROM python:3.12-slim-bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends build-essential libjpeg62-turbo-dev
WORKDIR /src
COPY . .
RUN python -m venv /opt/highway && /opt/highway/bin/pip install --no-cache-dir ".[fast]"
# highway does without its extensions where they cannot be built; here they have to be there.
RUN cd / && /opt/highway/bin/python -c "import highway.images._jpeg, highway.wire.transports.shm._message"

FROM python:3.12-slim-bookworm
# tini is process 1: it passes signals on, and reaps what nobody waits for.
RUN apt-get update && apt-get install -y --no-install-recommends libjpeg62-turbo tini && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 1000 --no-create-home highway && install -d -o highway -g highway /work
COPY --from=build /opt/highway /opt/highway
ENV PATH=/opt/highway/bin:$PATH HOME=/tmp PYTHONUNBUFFERED=1
WORKDIR /work
USER 1000:1000
ENTRYPOINT ["tini", "--", "highway"]
CMD ["--help"]

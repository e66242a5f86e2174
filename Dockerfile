# One image, three programs: `dovetail provisioner`, `dovetail webhook`, `dovetail extender`.
#
#   docker build -t dovetail:0.1.0 .
#
# The steps are in provisioner/lab/image. `make image` runs them too, for both architectures and without a container engine; what it makes is reproducible
# to the byte and carries a bill of materials. Nothing of the image that builds gets into the image that is built.
ARG BUILDER=docker.io/library/python:3.11.16-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b

FROM --platform=$BUILDPLATFORM ${BUILDER} AS build
ARG TARGETARCH
WORKDIR /src
COPY requirements.txt ./
COPY pyproject.toml ./
COPY README.md ./
COPY certs certs
COPY extender extender
COPY provisioner provisioner
COPY webhook webhook
RUN python -m provisioner.lab.image files ${TARGETARCH:-amd64} /image

FROM scratch
LABEL org.opencontainers.image.title="Dovetail" \
      org.opencontainers.image.description="Node autoscaler for Kubernetes on AWS: provisioner, webhook and scheduler extender" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="0.1.0"
COPY --from=build /image/base /
COPY --from=build /image/dependencies /
COPY --from=build /image/program /
ENV HOME=/tmp PATH=/usr/local/bin:/usr/bin PYTHONDONTWRITEBYTECODE=1 PYTHONOPTIMIZE=2 PYTHONUNBUFFERED=1
USER 65532:65532
WORKDIR /
ENTRYPOINT ["dovetail"]
CMD ["--help"]

# One image, three programs: `dovetail provisioner`, `dovetail webhook`, `dovetail extender`.
#
#   docker build -t dovetail:0.1.0 .
ARG PYTHON=python:3.11-slim

FROM ${PYTHON} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/dovetail
WORKDIR /src
# Dependencies first: they change less often than the code.
COPY requirements.txt ./
RUN /opt/dovetail/bin/pip install --require-hashes --no-deps -r requirements.txt
COPY pyproject.toml ./
COPY README.md ./
COPY certs certs
COPY extender extender
COPY provisioner provisioner
COPY webhook webhook
# What only developers run is not built (packages.find). Compiled here: the programs run on a read-only file system.
RUN /opt/dovetail/bin/pip install --no-deps . && /opt/dovetail/bin/python -m compileall -q -o 0 -o 2 /opt/dovetail/lib

FROM ${PYTHON}
COPY --from=build /opt/dovetail /opt/dovetail
ENV PATH=/opt/dovetail/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
USER 65532:65532
WORKDIR /
ENTRYPOINT ["dovetail"]
CMD ["--help"]

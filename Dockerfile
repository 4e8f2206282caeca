# Holdfast as a container: one process, one file under /data.
#
#   docker build -t holdfast .
#   docker run -p 8070:8070 -v holdfast:/data -e HOLDFAST_API_KEY="$(openssl rand -hex 32)" holdfast
#
# It listens at every address of the container, so it does not start without a key: HOLDFAST_API_KEY, or one that was
# made before with `holdfast keys create` on the same volume. Names other than localhost by which it is called stand in
# HOLDFAST_ALLOW_HOSTS.

# The base is named by an exact version. Its digest is not known where this file is kept; to pin it, append the one that
# `docker buildx imagetools inspect` prints: python:3.11.14-slim-bookworm@sha256:…
ARG BASE=python:3.11.14-slim-bookworm

FROM ${BASE} AS build
WORKDIR /src
RUN python -m venv /opt/holdfast
COPY requirements.txt pyproject.toml README.md LICENSE ./
# Every package comes from the lock file and is checked against its hash; from those alone, with no look elsewhere,
# Holdfast and what it needs are installed. The tools of developers stand in the lock file too, and are left here.
RUN pip download --no-cache-dir --require-hashes --dest /wheels -r requirements.txt
COPY hatch_build.py ./
COPY ui ui
COPY holdfast holdfast
RUN /opt/holdfast/bin/pip install --no-cache-dir --compile --no-index --find-links /wheels ".[otel,postgres,s3]"

FROM ${BASE}
RUN useradd --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin holdfast \
 && install --directory --owner=holdfast --group=holdfast --mode=0750 /data
COPY --from=build /opt/holdfast /opt/holdfast
ENV PATH=/opt/holdfast/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    HOLDFAST_DB=sqlite:////data/holdfast.db \
    HOLDFAST_HOST=0.0.0.0 \
    HOLDFAST_PORT=8070 \
    HOLDFAST_LOG=json
USER holdfast
WORKDIR /data
VOLUME /data
EXPOSE 8070

# Alive, not ready: a server whose disk is full says so at /readyz, and starting it again would not help.
HEALTHCHECK --interval=15s --timeout=5s --start-period=20s \
  CMD ["python", "-c", "import os, urllib.request as u; u.urlopen(f'http://127.0.0.1:{os.environ[\"HOLDFAST_PORT\"]}/healthz', timeout=3)"]

# TERM lets requests end and gives back what is at work: give it half a minute (`docker stop --time 30`).
STOPSIGNAL SIGTERM
ENTRYPOINT ["holdfast"]
CMD ["up"]

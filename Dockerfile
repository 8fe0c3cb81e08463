# Everything without a ROS installation: Debian's packages and PyPI's, nothing else.
# Untested: no Docker was at hand. The same steps run in CI without it.
#   docker build -t lpgftw . && docker run --rm -it lpgftw
FROM debian:bookworm-slim

RUN apt-get update && apt-get install -y --no-install-recommends \
      python3 python3-venv python3-dev make g++ git libegl1 libosmesa6 && rm -rf /var/lib/apt/lists/*
WORKDIR /lpgftw_ros
COPY . .
RUN make setup
ENV PATH=/lpgftw_ros/.venv/bin:$PATH MUJOCO_GL=osmesa
CMD ["lpgftw", "demo"]

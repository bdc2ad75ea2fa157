# The library where nothing can be compiled but Elixir: one image makes a package (docs/reference.md#packages), the other takes it.
#   docker build -t exphil_native .                                                  for the CPU
#   docker build -t exphil_native --build-arg RUN=nvidia/cuda:12.8.1-runtime-ubuntu24.04 .   with NVRTC, for an NVIDIA GPU
#   docker run [--gpus all] exphil_native
ARG RUN=debian:12-slim
FROM debian:12 AS build
WORKDIR /build
COPY . .
# CUDA's headers, with which the GPU backend is built; the wheels hold no driver.
RUN apt-get update && apt-get install -y --no-install-recommends python3-pip && \
    pip install --break-system-packages nvidia-cuda-runtime-cu12 nvidia-cuda-nvrtc-cu12
RUN .ci/setup --run && make package PACKAGES=/packages

FROM $RUN
RUN apt-get update && apt-get install -y --no-install-recommends elixir
WORKDIR /exphil_native
COPY --from=build /packages packages
COPY lib lib
COPY mix mix
COPY mix.exs .
ENV LC_ALL=C.UTF-8 MIX_ENV=prod EXPHIL_NATIVE_PRECOMPILED=packages
RUN mix compile
CMD ["mix", "exphil.play", "--seconds", "10"]

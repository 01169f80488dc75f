#!/usr/bin/env bash
# Sets up a virtual environment in .venv and runs everything that must be green: lint, format, types,
# pytest (which also runs the lit tests). --fast leaves out the tests that are marked as slow; other
# arguments are passed on to pytest.
set -euo pipefail
cd "$(dirname "$0")"

tests=()
if [ "${1-}" = --fast ]; then
    shift
    tests=(-m "not slow")
fi

missing=()
command -v ccache >/dev/null || missing+=(ccache)
command -v gcc >/dev/null || missing+=(gcc libc6-dev)
command -v clang >/dev/null || missing+=(clang)
command -v make >/dev/null || missing+=(make)
command -v cmake >/dev/null || missing+=(cmake)
ls /usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.asan* >/dev/null 2>&1 || missing+=(libclang-rt-14-dev)
command -v cppcheck >/dev/null || missing+=(cppcheck)
command -v qemu-system-arm >/dev/null || missing+=(qemu-system-arm)
command -v arm-none-eabi-gcc >/dev/null || missing+=(gcc-arm-none-eabi libnewlib-arm-none-eabi)
command -v g++ >/dev/null || missing+=(g++)
command -v aarch64-linux-gnu-gcc >/dev/null || missing+=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross)
command -v qemu-aarch64 >/dev/null || missing+=(qemu-user)
command -v ld.lld-14 >/dev/null || missing+=(lld-14) # for RISC-V
command -v nm >/dev/null || missing+=(binutils)
command -v chromium >/dev/null || missing+=(chromium) # for the page of --report
command -v node >/dev/null || missing+=(nodejs npm) # pyright runs on it
python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
if [ ${#missing[@]} -gt 0 ]; then
    if [ "$(id -u)" != 0 ]; then
        echo "test.sh: missing packages; as root: apt-get install ${missing[*]}" >&2
        exit 2
    fi
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
fi

[ -x .venv/bin/python ] || python3 -m venv .venv
# Most modules of the libraries are never imported; Python compiles what is.
.venv/bin/pip install --quiet --disable-pip-version-check --no-compile -e '.[dev]'
export PATH="$PWD/.venv/bin:$PATH"
# Tests start poetc hundreds of times, and each process would compile its modules anew.
unset PYTHONDONTWRITEBYTECODE

ruff check .
ruff format --check .

# Types are checked beside the first tests, many of which wait for compilers and emulators.
types=$(mktemp)
trap 'kill "$checking" 2>/dev/null || true; rm -f "$types"' EXIT
pyright >"$types" 2>&1 &
checking=$!
status=0
pytest -n 2 --dist worksteal -q "${tests[@]}" "$@" || status=$?
wait "$checking" || { cat "$types"; status=1; }
exit "$status"

#!/usr/bin/env bash
# Installs the Debian packages that pulse is built and tested with, by name and only when missing.
#   bash cmake/install_dependencies.sh [build] [test] [run]     (without a group: build)
# build: compiler, CMake and the libraries of every part; test: what the tests need besides; run: data for the examples and a test.
set -euo pipefail

build=(g++ cmake ninja-build nlohmann-json3-dev zlib1g-dev libdnnl-dev libglpk-dev libcli11-dev libopenmpi-dev
    libjpeg62-turbo-dev libpng-dev libwebp-dev)
test=(openmpi-bin doctest-dev libstb-dev clang libclang-rt-dev python3 python3-pil python3-torch libopenblas0-pthread)
run=(dataset-fashion-mnist)

fail() {
    echo "install_dependencies: $1" >&2
    exit 1
}

wanted=()
[ $# -gt 0 ] || set -- build
for group in "$@"; do
    case "$group" in
    build) wanted+=("${build[@]}") ;;
    test) wanted+=("${test[@]}") ;;
    run) wanted+=("${run[@]}") ;;
    *) fail "there is no group '$group' (build, test, run)" ;;
    esac
done

command -v dpkg-query >/dev/null 2>&1 ||
    fail "this is no Debian system; install the counterparts of: ${wanted[*]}"

missing=()
for package in "${wanted[@]}"; do
    status=$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null || true)
    [ "$status" = "install ok installed" ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0
echo "install_dependencies: installing ${missing[*]}"

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null 2>&1 || fail "not root and no sudo; install by hand: ${missing[*]}"
    # without a terminal nobody can type a password: fail instead of waiting
    if [ -t 1 ]; then as_root=(sudo); else as_root=(sudo -n); fi
fi
apt() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 \
        -o Dpkg::Options::=--force-confold "$@" </dev/null
}
install() { apt install --no-install-recommends "${missing[@]}"; }

# The package lists may be absent or stale: look again only when the first try fails.
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! install >"$log" 2>&1; then
    if ! { apt update && install; } >"$log" 2>&1; then
        tail -n 15 "$log" >&2
        fail "apt-get could not install: ${missing[*]}"
    fi
fi

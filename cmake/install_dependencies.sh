#!/usr/bin/env bash
# Installs the Debian packages that pulse is built and tested with, by name and only when missing.
#   bash cmake/install_dependencies.sh [build] [test] [run] [compare]     (without a group: build)
# build: compiler, CMake and the libraries of every part; test: what the tests need besides; run: data for the examples
# and a test; compare: PyPI packages whose results tests compare with, into .cache/python, where the tests look for them.
set -euo pipefail

build=(g++ cmake ninja-build nlohmann-json3-dev zlib1g-dev libdnnl-dev libglpk-dev libcli11-dev libopenmpi-dev
    libutf8proc-dev libsentencepiece-dev)
test=(openmpi-bin doctest-dev libstb-dev clang libclang-rt-dev python3 python3-torch libopenblas0-pthread)
run=(dataset-fashion-mnist)
compare=(python3 python3-pip python3-numpy)
# transformers 4.38 and what it imports for tokenizers; CLIP's vocabulary is in open_clip_torch
wheels=(transformers==4.38.2 tokenizers==0.15.2 huggingface_hub==0.23.4 safetensors==0.4.5 regex==2024.11.6
    sentencepiece==0.2.0 filelock==3.16.1 fsspec==2024.12.0 packaging==24.2 pyyaml==6.0.2 requests==2.32.3 urllib3==2.2.3
    idna==3.10 certifi==2024.12.14 charset_normalizer==3.4.1 tqdm==4.67.1 typing_extensions==4.12.2
    open_clip_torch==2.30.0)

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
    compare) wanted+=("${compare[@]}") ;;
    *) fail "there is no group '$group' (build, test, run, compare)" ;;
    esac
done

command -v dpkg-query >/dev/null 2>&1 ||
    fail "this is no Debian system; install the counterparts of: ${wanted[*]}"

missing=()
for package in "${wanted[@]}"; do
    status=$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null || true)
    [ "$status" = "install ok installed" ] || missing+=("$package")
done
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if [ ${#missing[@]} -gt 0 ]; then
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
    if ! install >"$log" 2>&1; then
        if ! { apt update && install; } >"$log" 2>&1; then
            tail -n 15 "$log" >&2
            fail "apt-get could not install: ${missing[*]}"
        fi
    fi
fi

# pip's --target neither touches nor sees what the system has. A folder that was made from another list is replaced.
into=$(dirname "${BASH_SOURCE[0]}")/../.cache/python
if [[ " $* " == *" compare "* ]] && [ "$(cat "$into/wheels" 2>/dev/null)" != "${wheels[*]}" ]; then
    echo "install_dependencies: installing ${wheels[*]}"
    rm -rf "$into" "$into.new"
    pip=(/usr/bin/python3 -m pip install --quiet --no-input --no-deps --no-compile)
    "${pip[@]}" --target "$into.new" "${wheels[@]}" >"$log" 2>&1 || {
        tail -n 15 "$log" >&2
        fail "pip could not install: ${wheels[*]}"
    }
    echo "${wheels[*]}" >"$into.new/wheels"
    mv "$into.new" "$into"
fi

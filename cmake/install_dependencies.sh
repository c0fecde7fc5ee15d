#!/usr/bin/env bash
# Installs the Debian packages that pulse is built and tested with, by name and only when missing.
#   bash cmake/install_dependencies.sh [build] [test] [compare] [run]     (without a group: build)
# build: the compiler, CMake and the libraries of every part; test: what building the tests also needs, with oneDNN 3 in
# build/onednn3, because Debian 12 has oneDNN 2; compare: what only running the tests needs, with the packages they
# compare with in build/python and build/python_newest; run: data for the examples and a test.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=(g++ cmake ninja-build nlohmann-json3-dev zlib1g-dev libdnnl-dev libglpk-dev libcli11-dev libopenmpi-dev
    libutf8proc-dev libsentencepiece-dev libjpeg62-turbo-dev libpng-dev libwebp-dev)
test=(openmpi-bin doctest-dev libstb-dev clang clang-format clang-tidy libclang-rt-dev libomp-dev python3
    python3-numpy python3-pip)
compare=(python3 python3-pil python3-pip python3-torch libopenblas0-pthread)
run=(dataset-fashion-mnist python3 python3-numpy python3-pil)
# oneDNN 3.2 on GCC's OpenMP, from PyPI, Apache-2.0. Later wheels run only on SYCL, which pulse::host rejects.
onednn3=2023.2.0
# transformers 4.38, diffusers 0.27 and their dependencies, which run on Debian's torch 1.13; open_clip_torch has CLIP's
# vocabulary
compared=(transformers==4.38.2 diffusers==0.27.2 tokenizers==0.15.2 huggingface_hub==0.23.4 safetensors==0.4.5
    regex==2024.11.6 sentencepiece==0.2.0 filelock==3.16.1 fsspec==2024.12.0 packaging==24.2 pyyaml==6.0.2
    requests==2.32.3 urllib3==2.2.3 idna==3.10 certifi==2024.12.14 charset_normalizer==3.4.1 tqdm==4.67.1
    typing_extensions==4.12.2 open_clip_torch==2.30.0)
# Today's usual versions, with their dependencies as of a fixed day. uv installs these 5 GB in half a minute, from its
# cache in two seconds.
newest=(torch==2.15.0 diffusers==0.42.1 transformers==5.24.0 sentencepiece==0.2.3 protobuf==7.36.2 tensorboard==2.21.0)
newest_of=2026-11-25
uv=uv==0.13.9

fail() {
    echo "install_dependencies: $1" >&2
    exit 1
}

wanted=()
laid=()
[ $# -gt 0 ] || set -- build
for group in "$@"; do
    case "$group" in
    build) wanted+=("${build[@]}") ;;
    test)
        wanted+=("${test[@]}")
        laid+=(onednn3)
        ;;
    compare)
        wanted+=("${compare[@]}")
        laid+=(compared newest)
        ;;
    run) wanted+=("${run[@]}") ;;
    *) fail "there is no group '$group' (build, test, compare, run)" ;;
    esac
done

command -v dpkg-query >/dev/null 2>&1 ||
    fail "this is no Debian system; install the counterparts of: ${wanted[*]}"

log=$(mktemp)
scratch=$(mktemp -d)
trap 'rm -rf "$log" "$scratch"' EXIT

install_packages() {
    local missing=() as_root=() package status
    for package in "${wanted[@]}"; do
        status=$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null || true)
        [ "$status" = "install ok installed" ] || missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    echo "install_dependencies: installing ${missing[*]}"

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

    # The package lists may be missing or stale: update them only when the first try fails.
    if ! install >"$log" 2>&1; then
        if ! { apt update && install; } >"$log" 2>&1; then
            tail -n 15 "$log" >&2
            fail "apt-get could not install: ${missing[*]}"
        fi
    fi
}

# Installs the headers and one of the three copies of the library in the wheels.
lay_onednn3() {
    local folder=build/onednn3 wheel wheels=(onednn-cpu-gomp=="$onednn3" onednn-devel-cpu-gomp=="$onednn3")
    [ ! -e $folder/lib/libdnnl.so ] || return 0
    [ "$(uname -m)" = x86_64 ] || return 0 # only x86_64 has wheels
    echo "install_dependencies: laying ${wheels[*]} into $folder"
    /usr/bin/python3 -m pip download -q --no-deps --dest "$scratch" "${wheels[@]}" >"$log" 2>&1 || {
        tail -n 15 "$log" >&2
        fail "pip could not download: ${wheels[*]}"
    }
    for wheel in "$scratch"/*.whl; do /usr/bin/python3 -m zipfile -e "$wheel" "$scratch"; done
    rm -rf $folder
    mkdir -p $folder/lib
    mv "$scratch"/onednn_devel*.data/data/include $folder/
    mv "$scratch"/onednn_cpu*.data/data/lib/libdnnl.so.3 $folder/lib/
    ln -s libdnnl.so.3 $folder/lib/libdnnl.so
}

# pip's --target neither changes nor reads the system's packages. A folder made from another list is replaced.
lay_compared() {
    local folder=build/python
    [ "$(cat $folder/list 2>/dev/null)" != "${compared[*]}" ] || return 0
    echo "install_dependencies: laying ${compared[*]} into $folder"
    rm -rf $folder
    /usr/bin/python3 -m pip install -q --no-deps --no-compile --target $folder "${compared[@]}" >"$log" 2>&1 || {
        tail -n 15 "$log" >&2
        fail "pip could not install: ${compared[*]}"
    }
    echo "${compared[*]}" >$folder/list
}

lay_newest() {
    local folder=build/python_newest list="${newest[*]} $newest_of"
    [ "$(cat $folder/list 2>/dev/null)" != "$list" ] || return 0
    echo "install_dependencies: laying ${newest[*]} into $folder"
    rm -rf $folder
    {
        /usr/bin/python3 -m pip install -q --no-deps --target "$scratch/uv" "$uv" &&
            "$scratch"/uv/bin/uv pip install -q --python /usr/bin/python3 --exclude-newer "${newest_of}T00:00:00Z" \
                --target $folder "${newest[@]}"
    } >"$log" 2>&1 || {
        tail -n 15 "$log" >&2
        fail "uv could not install: ${newest[*]}"
    }
    echo "$list" >$folder/list
}

install_packages
for one in "${laid[@]}"; do lay_"$one"; done

#!/usr/bin/env bash
# Installs what is missing, builds pulse_train and trains a diffusion UNet on Fashion-MNIST with 2 pipeline ranks; at most
# 15 minutes on 2 cores, all set-up included.
#   bash examples/quickstart.sh [folder for the results]      (default: build/quickstart/run)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

out=${1:-build/quickstart/run}
log=build/quickstart/build.log
mkdir -p build/quickstart

echo "installing what is missing ..."
bash cmake/install_dependencies.sh build run

echo "building ..."
if ! { cmake --preset release -B build/quickstart -DPULSE_BUILD_TESTS=OFF -DPULSE_BUILD_BENCH=OFF -DPULSE_CUDA=OFF &&
    cmake --build build/quickstart --target pulse_train -j "$(nproc)"; } </dev/null >"$log" 2>&1; then
    tail -n 30 "$log" >&2
    echo "quickstart: the build failed; all of it is in $log" >&2
    exit 1
fi

# What is left of 15 minutes, with room for drawing the samples; 7 minutes are enough.
train=$((780 - SECONDS))
train=$((train > 420 ? 420 : train < 60 ? 60 : train))
echo "training for $((train / 60)) minutes $((train % 60)) seconds (set-up took $SECONDS s) ..."
build/quickstart/bin/pulse_train --model ddpm_fmnist_small --ranks 2 --threads 1 --microbatch-size 8 --microbatches 4 --placement folded \
    --lr 2e-3 --ema 0.998 --steps 100000 --time-limit "$train" --sample 64 --out "$out"

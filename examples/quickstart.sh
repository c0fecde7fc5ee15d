#!/usr/bin/env bash
# Installs what is missing, builds pulse_train, trains a text-conditioned diffusion UNet on captioned Fashion-MNIST
# pictures with 2 pipeline ranks, draws by prompt and reports how many pictures match their prompts; at most 15 minutes
# on 2 cores, including set-up.
#   bash examples/quickstart.sh [folder for the results]      (default: build/quickstart/run)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

out=${1:-build/quickstart/run}
data=build/quickstart/fashion-mnist
log=build/quickstart/build.log
mkdir -p build/quickstart

echo "installing what is missing ..."
bash cmake/install_dependencies.sh build run

echo "building ..."
if ! { cmake --preset release -B build/quickstart -DPULSE_BUILD_TESTS=OFF -DPULSE_BUILD_BENCH=OFF -DPULSE_CUDA=OFF \
    -DPULSE_TRAIN_HOST=sd_fmnist &&
    cmake --build build/quickstart --target pulse_train -j "$(nproc)"; } </dev/null >"$log" 2>&1; then
    tail -n 30 "$log" >&2
    echo "quickstart: the build failed; all of it is in $log" >&2
    exit 1
fi

echo "writing pictures, captions and a text encoder ..."
rm -rf "$data"
/usr/bin/python3 -B examples/fashion_mnist.py write "$data"

# The rest of the 15 minutes, less time for drawing; 9 minutes are enough.
train=$((780 - SECONDS))
train=$((train > 540 ? 540 : train < 60 ? 60 : train))
echo "training for $((train / 60)) minutes $((train % 60)) seconds (set-up took $SECONDS s) ..."
drawing=(--model sd_fmnist --ranks 2 --prompts "$data/prompts.txt" --guidance 3 --sampler dpm++ --sample-steps 20)
build/quickstart/bin/pulse_train "${drawing[@]}" --data "$data/pictures" --from "$data/start" --init \
    --caption-dropout 0.1 \
    --threads 1 --microbatch-size 8 --microbatches 4 --placement folded --lr 2e-3 --ema 0.998 --steps 100000 \
    --time-limit "$train" --sample 60 --export "$out/model" --out "$out"

# Draws from the exported folder: 20 pictures per prompt.
build/quickstart/bin/pulse_train "${drawing[@]}" --from "$out/model" --steps 0 --sample 200 --out "$out/drawn"
/usr/bin/python3 -B examples/fashion_mnist.py check "$out/drawn/pictures"

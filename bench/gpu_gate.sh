#!/usr/bin/env bash
# Runs all of pulse that needs a card, in half an hour and on a machine without the dependencies of a build:
#   gpu_gate.sh build [--from FOLDER] [--into FOLDER] [--limit MIB]
#       builds programs that need neither this processor nor this machine's folders, and packs them with what runs them
#       into one file, FOLDER.tar.gz (build/gate/pulse_gate.tar.gz); --from takes programs that are already built
#   gpu_gate.sh correctness|speed RESULT [--python FILE] [--engines FILE] [--only REGEX] [--seconds N]
#           [--step-seconds N]
#       runs from the unpacked folder where there are a driver, CUDA and a Python with torch and NVIDIA's wheels, and
#       leaves at most 8 files in the folder RESULT. --engines: the engines.tar.gz of another call, so that engines are
#       not compiled again (default: that of RESULT, if any); --only: test cases whose names match; --seconds: limit of
#       the whole call; --step-seconds: limit of each step
#   gpu_gate.sh summary RESULT
#       prints what passed and what did not, and the figures against their targets
# Exit status: 0 all passed and every target is met, 1 otherwise, 2 refused.
# --emulated is for programs that are built with tests/support/emulated_cuda: everything is as small as possible.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# For calls from a checkout; beside carried programs it means nothing.
root=$(dirname "$here")
programs=(test_cuda test_nccl_gpu bench_blocks bench_p2p pulse_train)

refuse() {
    echo "gpu_gate: $*" >&2
    exit 2
}

# --- build

# What the machine with the card has from its C library, driver and NVIDIA's wheels; all else is carried.
there='^(linux-vdso|ld-linux-x86-64|lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s|cuda(rt)?|cublas(Lt)?|cudnn[a-z_]*|nccl))\.so'

# Copies the program's libraries that are carried; reports those that are missing.
carry_libraries() { # PROGRAM INTO
    local line name path missing=0
    while read -r line; do
        name=$(basename "${line%% *}")
        path=$(sed -nE 's/.*=> ([^ ]+) .*/\1/p' <<<"$line")
        if [[ $name =~ $there ]]; then
            continue
        elif [ -f "$path" ]; then
            cp -L "$path" "$2/$name"
        else
            echo "gpu_gate: $(basename "$1") needs $name, which is not here" >&2
            missing=1
        fi
    done < <(ldd "$1")
    return $missing
}

build() {
    local from='' into=$root/build/gate/pulse_gate limit=60 program bytes failed=0
    while [ $# -gt 0 ]; do
        [ $# -gt 1 ] || refuse "$1 of what?"
        case $1 in
            --from) from=$2 ;;
            --into) into=$2 ;;
            --limit) limit=$2 ;;
            *) refuse "build: $1 is not known" ;;
        esac
        shift 2
    done
    if [ -z "$from" ]; then
        from=$root/build/gate/bin
        cmake -S "$root" -B "$root/build/gate" -DCMAKE_BUILD_TYPE=Release -DPULSE_NATIVE=OFF -DCMAKE_SKIP_RPATH=ON \
            -DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON -DPULSE_TEST_ARCHITECTURES=90 \
            -DCMAKE_CUDA_FLAGS=--compress-mode=size -DPULSE_TRAIN_HOST=ddpm_fmnist_small \
            -DPULSE_TRAIN_CUDA="sd_tiny:bf16;ddpm_fmnist_small:bf16" &&
            cmake --build "$root/build/gate" -j "$(nproc)" --target "${programs[@]}" || exit 1
    fi
    rm -rf "$into" "$into.tar.gz"
    mkdir -p "$into" || exit 1
    for program in "${programs[@]}"; do
        [ -f "$from/$program" ] || refuse "there is no $from/$program"
        strip -o "$into/$program" "$from/$program" || exit 1
        carry_libraries "$into/$program" "$into" || failed=1
        if readelf -d "$into/$program" | grep -E 'R(UN)?PATH'; then
            echo "gpu_gate: $program looks for libraries in a folder of this machine" >&2
            failed=1
        fi
    done
    cp "$root"/bench/{gpu_gate.sh,gate_report.py,blocks_peer.py} \
        "$root"/tests/programs/{pulse_train_cuda,pulse_train_nccl,tiny_pipeline,drawn_plans,device_tests,files}.py \
        "$into" || exit 1
    git -C "$root" log -1 --format='%H %cs' >"$into/commit.txt" 2>&1
    git -C "$root" diff --quiet HEAD 2>/dev/null || echo "and changes that were not committed" >>"$into/commit.txt"
    tar -C "$(dirname "$into")" -czf "$into.tar.gz" "$(basename "$into")" || exit 1
    bytes=$(stat -c %s "$into.tar.gz")
    (cd "$into" && du -b -- * | sort -n)
    echo "$into.tar.gz: $((bytes / 1048576)) MiB, at most $limit"
    if [ "$bytes" -gt $((limit * 1048576)) ]; then
        echo "gpu_gate: that is too large to be carried; the sizes are above" >&2
        failed=1
    fi
    # An unfit archive is not left behind.
    [ $failed = 0 ] || rm "$into.tar.gz"
    exit $failed
}

# --- steps

# Adds STATUS SECONDS STEP WORD to the table at once, so that the line survives whatever comes after.
record() {
    printf '%s\t%s\t%s\t%s\n' "$@" | tee -a "$result/$part.txt"
}
# What an exit status means.
verdict() { # STATUS TOOK LIMIT
    case $1 in
        0) echo passed ;;
        # The program found no card, which is a fault on a machine that has one.
        77) if [ "$PULSE_REQUIRE_GPU" = 1 ]; then echo failed; else echo skipped; fi ;;
        124) echo "timed out" ;;
        *) if [ "$1" = 137 ] && [ "$2" -ge "$3" ]; then echo "timed out"; else echo failed; fi ;; # killed by timeout
    esac
}
# Sets `limit` to the time left for a step; if there is none, records that and returns 1.
fit() { # STEP
    local left=$((deadline - EPOCHSECONDS))
    limit=$((limit * slower))
    [ "$limit" -le "$left" ] || limit=$left
    [ "$limit" -le "$step_seconds" ] || limit=$step_seconds
    [ "$left" -ge 5 ] || { record "not run" 0 "$1" "no time"; return 1; }
}
# Summary of a log: of doctest, how many cases passed and which failed, including the one running at a timeout;
# otherwise the last line.
said_in() { # LOG
    awk '/^TEST CASE: / { name = substr($0, 13) }
        /ERROR: / && name != "" && !seen[name]++ { failed = failed "; " name }
        /^\[doctest\] test cases:/ { passed = $6 " passed" }
        /[^ ]/ { last = $0 }
        END { print passed failed == "" ? last : passed failed }' "$1" | tr '\t' ' ' | cut -c 1-800
}
# Runs a command as a step; the next one runs whatever its result.
step() { # STEP LIMIT COMMAND...
    local name=$1 limit=$2 log="$logs/${1// /_}.log" started group status took word=''
    shift 2
    fit "$name" || return
    started=$EPOCHSECONDS
    timeout -k 5 "$limit" "$@" >"$log" 2>&1 </dev/null &
    group=$!
    wait $group
    status=$?
    # Its children end with it, also those that would finish a step of training before they heed a signal.
    kill -KILL -- -$group 2>/dev/null
    took=$((EPOCHSECONDS - started))
    if grep -q '^\[doctest\] test cases: *0 ' "$log"; then status=1; fi
    if [ $status != 0 ] || grep -q '^\[doctest\]' "$log"; then word=$(said_in "$log"); fi
    record "$(verdict $status $took "$limit")" $took "$name" "$word"
}
# The names of the wanted cases of test_cuda under its filters.
names_of() { # FILTER...
    timeout -k 5 30 "$here/test_cuda" --list-test-cases --no-intro "$@" 2>/dev/null |
        grep -vE '^(\[doctest\]|=====|GPU: |$)' | grep -E -- "$only"
}
# Runs test cases as one step in one process: a context costs more than most of them.
cases() { # STEP LIMIT NAMES COMMAND...
    local name=$1 limit=$2 list=$3
    shift 3
    if [ -z "$list" ]; then record failed 0 "$name" "there is no test case"; return; fi
    # doctest separates filters by commas
    step "$name" "$limit" "$@" --no-intro --no-version \
        "--test-case=$(sed 's/,/\\,/g' <<<"$list" | paste -sd,)"
}
# Finds a program of CUDA, even if it is not on the path.
find_tool() { # NAME
    command -v "$1" || ls "${CUDA_HOME:-/usr/local/cuda}/bin/$1" 2>/dev/null
}

# --- what runs

versions() {
    local program
    set -o pipefail
    cat "$here/commit.txt"
    uname -srm && nproc
    nvidia-smi || { echo "no nvidia-smi"; [ "$PULSE_REQUIRE_GPU" != 1 ] || return 1; }
    "$(find_tool nvcc || echo nvcc)" --version || echo "no nvcc"
    echo "LD_LIBRARY_PATH=$LD_LIBRARY_PATH"
    for program in "$@"; do
        echo "$program:"
        LD_LIBRARY_PATH=$with_carried ldd "$here/$program" || return 1
    done | tee "$scratch/ldd" || return 1
    if grep 'not found' "$scratch/ldd"; then return 1; fi
    "$python" -c 'import torch; print("torch", torch.__version__, torch.version.cuda, torch.backends.cudnn.version())'
}

memory_gib() {
    local mib
    mib=$(nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits 2>/dev/null | head -n 1)
    echo $((${mib:-0} / 1024))
}

correctness() {
    local own library kernels sanitizer tool options model parts
    own=$(names_of '--source-file-exclude=*backend*' '--test-case-exclude=*cuDNN*')
    library=$({ names_of '--source-file=*backend*'; names_of '--test-case=*cuDNN*'; } | sort -u)
    kernels=$(names_of '--test-case-exclude=*cuDNN*' '--source-file=*attention.cu,*conditioned.cu,*copy_bytes.cu,'\
'*group_norm.cu,*layer_norm.cu,*pointwise.cu,*training_kernels.cu')
    # In parallel: they mostly wait for engines to compile, and for oracles on the CPU.
    cases "own kernels" 150 "$own" "$here/test_cuda" &
    parts=($!)
    cases "library calls" 150 "$library" "$here/test_cuda" &
    parts+=($!)
    for model in "${on_host[@]}"; do
        step "training as on the host, $model" 150 \
            "${train[@]}" pulse_train_cuda.py "$here/pulse_train" "$model" bf16 &
        parts+=($!)
    done
    wait "${parts[@]}"
    sanitizer=$(find_tool compute-sanitizer)
    parts=()
    for tool in memcheck racecheck synccheck; do
        options=(--tool "$tool" --error-exitcode 9)
        # Some cases cause CUDA errors on purpose.
        [ $tool != memcheck ] || options+=(--report-api-errors no)
        if [ -n "$sanitizer" ]; then
            cases "$tool" 120 "$kernels" "$sanitizer" "${options[@]}" "$here/test_cuda" &
            parts+=($!)
        else
            record skipped 0 "$tool" "no compute-sanitizer"
        fi
    done
    wait "${parts[@]}"
    # Ranks that share a card take turns: a message takes milliseconds.
    step "NCCL, 2 and 4 ranks on one card" 60 "$here/test_nccl_gpu"
    for model in "${models[@]}"; do
        step "NCCL ranks as threads, $model" 70 \
            "${train[@]}" pulse_train_nccl.py "$here/pulse_train" "$model" bf16 "$where" "$nccl_cases"
    done
    step "bench_p2p" 40 "$here/bench_p2p" "${messages[@]}" --json "$figures/bench_p2p.json"
    # Each part alone: one that times out writes no figures.
    local blocks=("$here/bench_blocks" --part operations --torch none --rounds "$rounds" "${small[@]}" --batch "$batch")
    step "operations that move memory" 35 "${blocks[@]}" --only "${memory[@]}" --json "$figures/memory.json"
    step "convolutions and products" 40 "${blocks[@]}" --only "${products[@]}" --json "$figures/products.json"
    step "attention" 20 "${blocks[@]}" --only "${attention[@]}" --json "$figures/attention.json"
}

speed() {
    local ncu mode steps=("$here/bench_blocks" --part steps "${small[@]}")
    local beside=(--rounds "$rounds" --python "$python" --script "$here/blocks_peer.py" --torch-device "$device")
    step "engines of sd21" 110 "${steps[@]}" --only "$first" --batch 1 4 --rounds 3 --torch none
    # A program writes its figures at its end, and torch.compile takes minutes, so each mode has its own step.
    for mode in "${modes[@]}"; do
        step "step of $unet, torch $mode" 150 "${steps[@]}" --only "$unet" --batch "$batch" "${beside[@]}" \
            --torch "$mode" --json "$figures/${unet}_$mode.json"
    done
    if [ "$(memory_gib)" -ge 100 ]; then
        step "step of sdxl" 150 "${steps[@]}" --only sdxl --batch 1 "${beside[@]}" --torch "${modes[@]}" \
            --json "$figures/sdxl.json"
    else
        record skipped 0 "step of sdxl" "it takes 100 GiB, the card has $(memory_gib)"
    fi
    ncu=$(find_tool ncu)
    if [ -n "$ncu" ]; then
        # The kernels of a block, before capture, follow the product that measures the rate of the card.
        step "kernels of a transformer" 45 "$ncu" --clock-control none --launch-count 200 --section SpeedOfLight \
            "$here/bench_blocks" --part layers "${small[@]}" --only transformer --batch "$batch" --rounds 3 --torch none
    else
        record skipped 0 "kernels of a transformer" "no ncu"
    fi
}

# Writes the files of a call, without those that are too large to be sent home.
finish() {
    local file separator=''
    for file in "$figures"/*.json; do
        [ ! -f "$file" ] || printf '%s"%s":%s' "$separator" "$(basename "$file" .json)" "$(cat "$file")"
        separator=,
    done | sed '1s/^/{/; $s/$/}/' >"$result/$part.json"
    [ -s "$result/$part.json" ] || rm "$result/$part.json"
    if [ -d "$PULSE_ENGINE_CACHE" ]; then
        # Says which engine of cuDNN computes which graph, so that a stand-in is not taken for another engine.
        for file in "$PULSE_ENGINE_CACHE"/*.engine; do
            sed -n 2p "$file"
            grep -ao '"engine":{"engineId":[0-9]*' "$file"
        done >"$logs/engines.log"
        tar -C "$scratch" -czf "$result/engines.tar.gz" engines
    fi
    # The end of a log says what went wrong.
    find "$logs" -name '*.log' -size +1024k -exec sh -c 'tail -c 1048576 "$1" >"$1.end" && mv "$1.end" "$1"' _ {} \;
    tar -C "$scratch" -czf "$result/${part}_logs.tar.gz" logs
    for file in "$result"/*.tar.gz; do
        if [ "$(stat -c %s "$file")" -gt $((16 * 1048576)) ]; then
            record failed 0 "$(basename "$file")" "more than 16 MiB, left out"
            rm "$file"
        fi
    done
    "$python" "$here/gate_report.py" "$result" | tee "$result/summary.txt"
    exit "${PIPESTATUS[0]}"
}

run() {
    [ $# -gt 1 ] || refuse "$1: RESULT is needed"
    part=$1 result=$2
    python=$(command -v python3) only=. where=gpu step_seconds=100000 slower=1
    local engines='' seconds=560
    shift 2
    models=(sd_tiny ddpm_fmnist_small) nccl_cases=Training messages=(--sizes 8 4K 64K 1M 16M 256M)
    on_host=("${models[@]}")
    small=() batch=4 memory=(norm geglu upsample sum_rows silu copy) products=(conv2d linear) attention=(attention)
    unet=sd21 first=sd21 modes=(eager compile) device=cuda rounds=11
    export PULSE_REQUIRE_GPU=1
    while [ $# -gt 0 ]; do
        [ "$1" = --emulated ] || [ $# -gt 1 ] || refuse "$1 of what?"
        case $1 in
            --python) python=$(realpath -s "$2") ;;
            --engines) engines=$2 ;;
            --only) only=$2 ;;
            --seconds) seconds=$2 ;;
            --step-seconds) step_seconds=$2 ;;
            --emulated)
                where=emulated PULSE_REQUIRE_GPU=0 slower=5
                # Leaves out what takes the emulation more than seconds; no model is called none.
                models=(sd_tiny) nccl_cases=Training.test_a_pipeline_of_two messages=(--quick --sizes 8 64K) on_host=()
                small=(--quick) batch=2 memory=(copy) products=(linear_backward_input) attention=(silu_backward)
                unet=small first=none modes=(eager) device=cpu rounds=3
                shift
                continue
                ;;
            *) refuse "$part: $1 is not known" ;;
        esac
        shift 2
    done
    [ -x "$python" ] || refuse "there is no Python $python"
    [ -z "$engines" ] || [ -f "$engines" ] || refuse "there is no $engines"
    [ -x "$here/test_cuda" ] || refuse "there are no programs in $here: start it from the folder that build makes"
    mkdir -p "$result" && result=$(cd "$result" && pwd) || exit 1
    rm -f "$result/$part".* "$result/${part}_logs.tar.gz"

    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    logs=$scratch/logs figures=$scratch/figures
    mkdir "$logs" "$figures"
    deadline=$((EPOCHSECONDS + seconds))
    [ -n "$engines" ] || engines=$result/engines.tar.gz
    [ ! -f "$engines" ] || tar -C "$scratch" -xzf "$engines" || refuse "$engines is not an engines.tar.gz"
    export PULSE_ENGINE_CACHE=$scratch/engines
    # There are more streams than the default of eight queues.
    export CUDA_DEVICE_MAX_CONNECTIONS=32
    local wheels
    wheels=$("$python" -c 'import glob, nvidia
print(":".join(sorted(folder for path in nvidia.__path__ for folder in glob.glob(path + "/*/lib"))))' 2>/dev/null)
    export LD_LIBRARY_PATH=$wheels${wheels:+${LD_LIBRARY_PATH:+:}}${LD_LIBRARY_PATH:-}
    # The carried libraries are for pulse_train alone: torch has its own of the same names.
    with_carried=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$here
    train=(env -C "$here" LD_LIBRARY_PATH="$with_carried" PYTHONDONTWRITEBYTECODE=1 "$python")
    export -f versions find_tool
    export here python scratch with_carried
    step versions 60 bash -c 'versions "$@"' _ "${programs[@]}"
    "$part"
    finish
}

case ${1:-} in
    build) shift; build "$@" ;;
    correctness | speed) run "$@" ;;
    summary) [ $# = 2 ] || refuse "summary: RESULT is needed"; exec python3 "$here/gate_report.py" "$2" ;;
    *) refuse "build, correctness, speed or summary" ;;
esac

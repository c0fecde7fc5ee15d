#!/usr/bin/env bash
# Installs what is missing, builds pulse and runs its tests.
#   bash tests/run.sh                  every test, in an optimised build
#   bash tests/run.sh all              with clang and sanitizers: rooms that asan runs are not built twice
#   bash tests/run.sh PRESET...        of CMakePresets.json
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bash cmake/install_dependencies.sh build test run

# A compiler cache takes what a file includes from its compilation, and does not preprocess it before.
export CCACHE_DEPEND=1

jobs=$(nproc)
presets=("$@")
case "$*" in
"") presets=(check) ;;
all) presets=(asan tsan rest) ;;
esac

failed=()
summary=$(mktemp)
trap 'rm -f "$summary"' EXIT
for preset in "${presets[@]}"; do
    started=$SECONDS
    echo "== $preset: configure and build"
    if ! cmake --preset "$preset" </dev/null || ! cmake --build --preset "$preset" -j "$jobs" </dev/null; then
        failed+=("$preset (build)")
        echo "$preset: the build failed" >>"$summary"
        continue
    fi
    echo "== $preset: tests"
    log=build/$preset/ctest.log
    ctest --preset "$preset" -j "$jobs" </dev/null 2>&1 | tee "$log" || failed+=("$preset (tests)")
    {
        echo "$preset: $((SECONDS - started)) s"
        grep 'tests passed,' "$log" || true
        sed -n '/tests FAILED:/,$p' "$log"
        # The end of what each of those has said: from the line of its failure to the line of another test.
        awk 'function tell() { for (i = n > 60 ? n - 60 : 0; i < n; ++i) print said[i]; n = 0 }
            /\*\*\*/ && !/\*\*\*Skipped/ { tell(); on = 1; print; next }
            /^ *(Start +[0-9]+:|[0-9]+\/[0-9]+ Test)/ { tell(); on = 0 }
            on { said[n++] = substr($0, 1, 400) }
            END { tell() }' "$log"
    } >>"$summary"
done

echo
echo "== summary"
cat "$summary"
if [ ${#failed[@]} -gt 0 ]; then
    (IFS=,; echo "failed: ${failed[*]}" >&2)
    exit 1
fi

#!/usr/bin/env bash
# Installs what is missing, builds pulse and runs its tests.
#   bash tests/run.sh                  every test, in an optimised build
#   bash tests/run.sh all              with clang and sanitizers; rooms that asan runs are not built again
#   bash tests/run.sh PRESET...        of CMakePresets.json
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bash cmake/install_dependencies.sh build test
# Dependencies of tests alone, 5 GB, are installed while the first preset is built.
bash cmake/install_dependencies.sh compare run &
installed=$!

# With this, ccache takes a file's includes from its compilation, and does not preprocess it first.
export CCACHE_DEPEND=1

jobs=$(nproc)
presets=("$@")
case "$*" in
"") presets=(check) ;;
all) presets=(asan tsan rest) ;;
esac

failed=()
summary=$(mktemp)
trap 'rm -f "$summary"; kill "$installed" 2>/dev/null || true' EXIT

# The tests of a preset run while the next one is built, as neither keeps all cores busy to its end.
tested= # the preset whose tests are running
end_tests() {
    [ -n "$tested" ] || return 0
    local log=build/$tested/ctest.log
    wait "$tests" || failed+=("$tested (tests)")
    {
        echo "$tested: tested at $SECONDS s"
        grep 'tests passed,' "$log" || true
        sed -n '/tests FAILED:/,$p' "$log"
        # The last lines of each failed test's output: from its failure to the next test's first line.
        awk 'function tell() { for (i = n > 60 ? n - 60 : 0; i < n; ++i) print said[i]; n = 0 }
            /\*\*\*/ && !/\*\*\*Skipped/ { tell(); on = 1; print; next }
            /^ *(Start +[0-9]+:|[0-9]+\/[0-9]+ Test)/ { tell(); on = 0 }
            on { said[n++] = substr($0, 1, 400) }
            END { tell() }' "$log"
    } >>"$summary"
    tested=
}

for preset in "${presets[@]}"; do
    echo "== $preset: configure and build"
    built=yes
    { cmake --preset "$preset" && cmake --build --preset "$preset" -j "$jobs"; } </dev/null || built=no
    wait "$installed" || {
        echo "failed: what the tests need could not be installed, as is said above" >&2
        exit 1
    }
    end_tests
    if [ $built = no ]; then
        failed+=("$preset (build)")
        echo "$preset: the build failed at $SECONDS s" >>"$summary"
        continue
    fi
    echo "$preset: built at $SECONDS s" >>"$summary"
    echo "== $preset: tests"
    { ctest --preset "$preset" -j "$jobs" </dev/null 2>&1 | tee "build/$preset/ctest.log"; } &
    tested=$preset
    tests=$!
done
end_tests

echo
echo "== summary"
cat "$summary"
if [ ${#failed[@]} -gt 0 ]; then
    (IFS=,; echo "failed: ${failed[*]}" >&2)
    exit 1
fi

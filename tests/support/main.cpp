#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>

#include <support/skip.hpp>

namespace {

int skipped_cases = 0;

/// ctest reads this exit status as "skipped".
constexpr int skip_status = 77;

} // namespace

namespace pulse::test {

void skip(const char* reason) {
    ++skipped_cases;
    std::printf("pulse: skipped: %s\n", reason);
}

} // namespace pulse::test

int main(int argc, char** argv) {
    doctest::Context context;
    context.applyCommandLine(argc, argv);
    const int failed = context.run();
    if (context.shouldExit() || failed != EXIT_SUCCESS) { return failed; }
    return skipped_cases != 0 ? skip_status : EXIT_SUCCESS;
}

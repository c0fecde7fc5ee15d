#pragma once

namespace pulse::test {

/// Whether tests run all their drawn cases. AddressSanitizer runs some only: it takes ten times as long and looks for
/// memory faults that every case would show. ThreadSanitizer is fast enough and needs the variety.
#ifdef __SANITIZE_THREAD__
constexpr bool all_cases = true;
#else
constexpr bool all_cases = !PULSE_TEST_SANITIZED;
#endif

/// How many of `count` drawn cases a test runs: all, or a quarter.
constexpr int drawn_cases(int count) { return all_cases ? count : (count + 3) / 4; }

} // namespace pulse::test

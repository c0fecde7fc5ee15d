#pragma once

namespace pulse::test {

/// Whether drawn cases are all taken, as they are but under AddressSanitizer, which looks for faults of memory that
/// every case would have and takes ten times as long. ThreadSanitizer is fast enough, and threads are what it looks at.
#ifdef __SANITIZE_THREAD__
constexpr bool all_cases = true;
#else
constexpr bool all_cases = !PULSE_TEST_SANITIZED;
#endif

/// How many of `count` drawn cases a test takes: all, or a quarter.
constexpr int drawn_cases(int count) { return all_cases ? count : (count + 3) / 4; }

} // namespace pulse::test

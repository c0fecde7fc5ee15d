#pragma once

namespace pulse::test {

/// How many of `count` drawn cases a test takes: all, or a quarter under a sanitizer, which looks for faults of memory
/// and threads that every case would have, and takes ten times as long.
constexpr int drawn_cases(int count) { return PULSE_TEST_SANITIZED ? (count + 3) / 4 : count; }

} // namespace pulse::test

#pragma once

#include <doctest/doctest.h>

/// One check in two worlds: when the test is compiled, and when it runs (where sanitizers see it).
#define CHECK_BOTH(...)                                                                                                \
    do {                                                                                                               \
        static_assert(__VA_ARGS__);                                                                                    \
        CHECK((__VA_ARGS__));                                                                                          \
    } while (false)

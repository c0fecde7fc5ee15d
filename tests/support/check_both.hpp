#pragma once

#include <doctest/doctest.h>

/// Runs one check both at compile time and at run time (where sanitizers see it).
#define CHECK_BOTH(...)                                                                                                \
    do {                                                                                                               \
        static_assert(__VA_ARGS__);                                                                                    \
        CHECK((__VA_ARGS__));                                                                                          \
    } while (false)

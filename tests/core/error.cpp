#include <doctest/doctest.h>

#include <stdexcept>

#include <pulse/core/error.hpp>

TEST_CASE("every error of pulse is a pulse::error with its text") {
    CHECK_THROWS_WITH_AS(throw pulse::input_error("file: field"), "file: field", pulse::error);
    CHECK_THROWS_WITH_AS(throw pulse::infeasible_error("memory"), "memory", pulse::error);
    CHECK_THROWS_AS(throw pulse::error("any"), std::runtime_error);
}

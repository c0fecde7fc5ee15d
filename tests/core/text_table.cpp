#include <doctest/doctest.h>

#include <cstdlib>
#include <limits>

#include <pulse/core/text_table.hpp>

using namespace pulse;

TEST_CASE("bytes are said in the unit in which they read best") {
    CHECK(bytes_text(0) == "0 B");
    CHECK(bytes_text(1023) == "1023 B");
    CHECK(bytes_text(1024) == "1 KiB");
    CHECK(bytes_text(1536) == "1.5 KiB");
    CHECK(bytes_text(10.25 * 1024 * 1024) == "10.2 MiB");
    CHECK(bytes_text(3.14159 * 1024 * 1024 * 1024) == "3.14 GiB");
    CHECK(bytes_text(5000.0 * 1024 * 1024 * 1024 * 1024) == "5000 TiB");
}

TEST_CASE("durations are said in the unit in which they read best") {
    CHECK(duration_text(999.94) == "999.9 us");
    CHECK(duration_text(1e3) == "1.00 ms");
    CHECK(duration_text(999e3) == "999.00 ms");
    CHECK(duration_text(1.5e6) == "1.500 s");
}

TEST_CASE("digits are grouped in threes, whatever the sign") {
    CHECK(grouped(0) == "0");
    CHECK(grouped(-999) == "-999");
    CHECK(grouped(1000) == "1,000");
    CHECK(grouped(-123456) == "-123,456");
    CHECK(grouped(865910724) == "865,910,724");
}

TEST_CASE("an exact text is the shortest that is read back as the same number") {
    CHECK(exact_text(0.1) == "0.1");
    for (const double value : {1.0 / 3.0, std::numeric_limits<double>::denorm_min(), 1e300}) {
        CHECK(std::strtod(exact_text(value).c_str(), nullptr) == value);
    }
}

TEST_CASE("columns of a table are as wide as their widest cells, and lines have no blanks at their end") {
    text_table table;
    table.row({"name", "ms", "note"});
    table.row({"a", "10.5", ""});
    table.row({"longer", "1", "x"});
    CHECK(table.str(1) == "  name      ms  note\n  a       10.5\n  longer     1     x\n");
}

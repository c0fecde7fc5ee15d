#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <pictures/loss_svg.hpp>
#include <pictures/svg.hpp>
#include <pictures/timeline_svg.hpp>
#include <pulse/core/text_table.hpp>

namespace {

using namespace pictures;

/// A small XML checker: tags nest and close, attributes are quoted, no bare & or < in text.
bool well_formed(std::string_view xml) {
    std::vector<std::string> open;
    std::size_t at = 0;
    while (at < xml.size()) {
        if (xml[at] == '&') {
            const auto end = xml.find(';', at);
            const auto name = xml.substr(at, end == std::string_view::npos ? 1 : end + 1 - at);
            if (name != "&lt;" && name != "&gt;" && name != "&amp;" && name != "&quot;") { return false; }
        }
        if (xml[at] != '<') {
            ++at;
            continue;
        }
        std::size_t end = at + 1;
        bool quoted = false;
        while (end < xml.size() && (quoted || xml[end] != '>')) {
            if (xml[end] == '<') { return false; }
            quoted ^= xml[end] == '"';
            ++end;
        }
        if (end >= xml.size()) { return false; }
        const auto tag = xml.substr(at + 1, end - at - 1);
        const auto name = tag.substr(0, tag.find_first_of(" /", 1));
        if (tag.front() == '/') {
            if (open.empty() || open.back() != tag.substr(1)) { return false; }
            open.pop_back();
        } else if (tag.back() != '/') {
            open.emplace_back(name);
        }
        at = end + 1;
    }
    return open.empty();
}

std::size_t count(std::string_view text, std::string_view part) {
    std::size_t found = 0;
    for (std::size_t at = 0; (at = text.find(part, at)) != std::string_view::npos; at += part.size()) { ++found; }
    return found;
}

} // namespace

TEST_CASE("numbers are plain decimals") {
    CHECK(svg_number(0) == "0");
    CHECK(svg_number(1.5) == "1.5");
    CHECK(svg_number(-1.234) == "-1.23");
    CHECK(svg_number(-0.001) == "0");
    CHECK(svg_number(0.05) == "0.05");
    CHECK(svg_number(1234567, 0) == "1234567");
    CHECK(svg_number(std::nan("")) == "0");
    std::mt19937_64 engine{1};
    std::uniform_real_distribution<double> uniform{-1e6, 1e6};
    for (int i = 0; i != 2000; ++i) {
        const double x = uniform(engine) * std::pow(10.0, -static_cast<double>(i % 8));
        const int decimals = i % 7;
        CHECK(std::abs(std::stod(svg_number(x, decimals)) - x) <= 0.5000001 * std::pow(10.0, -decimals));
    }
}

TEST_CASE("ticks are round, even and inside") {
    std::mt19937_64 engine{2};
    std::uniform_real_distribution<double> exponent{-6, 6};
    for (int i = 0; i != 1000; ++i) {
        const double low = i % 3 == 0 ? 0 : std::pow(10, exponent(engine));
        const double high = low + std::pow(10, exponent(engine));
        const auto ticks = round_ticks(low, high, 8);
        CHECK(ticks.size() <= 9);
        if (low == 0) { CHECK(ticks.size() >= 3); }
        for (std::size_t k = 0; k != ticks.size(); ++k) {
            CHECK(ticks[k] >= low - 1e-6 * (high - low));
            CHECK(ticks[k] <= high + 1e-6 * (high - low));
            if (k > 1) { CHECK(ticks[k] - ticks[k - 1] == doctest::Approx(ticks[1] - ticks[0]).epsilon(1e-4)); }
        }
    }
    CHECK(round_ticks(5, 5, 4) == std::vector<double>{5});
}

TEST_CASE("text is escaped") {
    svg_builder svg{100, 50};
    svg.text(1, 2, "a<b & \"c\">\x01");
    svg.rectangle(1, 2, 3, 4, "red\"/><script>", "none", 0, "<tip>");
    CHECK(well_formed(svg.str()));
    CHECK(svg.str().find("a&lt;b &amp; &quot;c&quot;&gt;<") != std::string::npos);
    CHECK(svg.str().find("<script") == std::string::npos);
    CHECK(!well_formed("<a><b></a>"));
    CHECK(!well_formed("<a>&</a>"));
}

TEST_CASE("a loss curve is drawn for any losses") {
    std::mt19937_64 engine{3};
    std::normal_distribution<double> normal;
    const double nan = std::nan("");
    const double infinity = std::numeric_limits<double>::infinity();
    std::vector<std::vector<double>> runs{
        {},    {1},         {0, 0},        {nan, nan},    {1, 1, 1},        {-1, -2, 3},
        {nan}, {1, nan, 3}, {infinity, 2}, {1e-30, 1e30}, {1e-300, 2e-300}, {5e8, 4e8}};
    runs.emplace_back();
    for (int i = 0; i != 500; ++i) { runs.back().push_back(1 / (1 + 0.1 * i) + 0.01 * std::abs(normal(engine))); }
    for (const auto& losses : runs) {
        const std::string svg = loss_svg(losses, {.title = "a < b"});
        CHECK(well_formed(svg));
        CHECK(svg.find("nan") == std::string::npos);
        CHECK(svg.find("inf") == std::string::npos);
    }
    CHECK(loss_svg({}).find("no steps") != std::string::npos);
    // Every point of the long run is drawn, raw and smoothed, inside the axes.
    const std::string svg = loss_svg(runs.back());
    std::size_t points = 0;
    for (std::size_t at = 0; (at = svg.find("points=\"", at)) != std::string::npos; ++at) {
        const std::size_t end = svg.find('"', at + 8);
        std::string list = svg.substr(at + 8, end - at - 8);
        points += count(list, ",");
        std::replace(list.begin(), list.end(), ',', ' ');
        const char* text = list.c_str();
        char* next = nullptr;
        for (double x = std::strtod(text, &next); next != text; x = std::strtod(text, &next)) {
            text = next;
            const double y = std::strtod(text, &next);
            text = next;
            CHECK((x >= 76 && x <= 836));
            CHECK((y >= 48 && y <= 364));
        }
    }
    CHECK(points == 1000);

    // Validation is a separate curve of the finite values, even if no step, or only one, has a loss.
    const std::vector<std::pair<double, double>> judged{{0, 2}, {250, nan}, {300, 0.5}, {500, 0.25}};
    for (const auto& losses : runs) {
        const std::string both = loss_svg(losses, {.validation = judged});
        CHECK(well_formed(both));
        CHECK(both.find("nan") == std::string::npos);
        CHECK(both.find("validation: 0.25") != std::string::npos);
        CHECK(count(both, "#bc4c00") == 5); // three points, their line, and the legend's
    }
    CHECK(svg.find("validation") == std::string::npos);
}

TEST_CASE("a timeline shows every event of every rank, and what cannot be drawn is left out") {
    std::mt19937_64 engine{4};
    for (int round = 0; round != 20; ++round) {
        std::vector<timeline_event> events;
        const int ranks = static_cast<int>(1 + engine() % 5);
        for (int i = 0; i != 200; ++i) {
            const double start = static_cast<double>(engine() % 100'000) * (round % 2 == 0 ? 1 : 100);
            events.push_back({.rank = static_cast<int>(engine() % static_cast<unsigned>(ranks)),
                              .lane = static_cast<int>(engine() % 2),
                              .name = i % 5 == 0 ? "<odd & name>" : "",
                              .kind = "FBWRSVAOx"[engine() % 9],
                              .stage = static_cast<int>(engine() % 4) - 1,
                              .microbatch = static_cast<int>(engine() % 12) - 1,
                              .start_us = start,
                              .end_us = start + static_cast<double>(engine() % 5000),
                              .flow = static_cast<std::int64_t>(engine() % 50),
                              .bytes = static_cast<std::int64_t>(engine() % 3)});
        }
        const std::string good = timeline_svg(events);
        CHECK(well_formed(good));
        CHECK(count(good, "<title>") == events.size());
        for (int r = 0; r != ranks; ++r) { CHECK(good.find(">rank " + std::to_string(r) + "<") != std::string::npos); }
        events.push_back({.start_us = std::nan("")});
        events.push_back({.start_us = 5, .end_us = 4});
        CHECK(timeline_svg(events) == good);
    }
    CHECK(well_formed(timeline_svg({})));
    CHECK(well_formed(timeline_svg(std::vector<timeline_event>{{.kind = 'F', .start_us = 3, .end_us = 3}})));
}

TEST_CASE("counters are stacked below their rank on one scale, and what cannot be drawn is left out") {
    const std::vector<timeline_event> events{{.rank = 0, .kind = 'F', .start_us = 0, .end_us = 100},
                                             {.rank = 1, .kind = 'F', .start_us = 0, .end_us = 100}};
    std::vector<trace_counter> counters{
        {0, "weights", 0, 1024}, {0, "activations", 0, 0}, {0, "activations", 50, 3072}, {1, "weights", 0, 2048}};
    const std::string svg = timeline_svg(events, {.width = 1094}, counters); // 1000 pixels for 100 us
    CHECK(well_formed(svg));
    CHECK(count(svg, "<polygon") == 4); // two names on each of two ranks
    // Rank 0: lane at 76 to 110, strip from 113 to 153; 4096 bytes are 40 pixels, so the weights reach up to 143.
    CHECK(svg.find("74,143") != std::string::npos);
    CHECK(svg.find("574,143 574,113 1074,113 1074,153") != std::string::npos);
    CHECK(svg.find(">4 KiB<") != std::string::npos);
    CHECK(svg.find(">2 KiB<") != std::string::npos);
    counters.push_back({0, "weights", std::nan(""), 1});
    counters.push_back({0, "weights", 1, -1});
    counters.push_back({7, "weights", 1, 1}); // an idle rank
    CHECK(timeline_svg(events, {.width = 1094}, counters) == svg);
    CHECK(pulse::bytes_text(0) == "0 B");
    CHECK(pulse::bytes_text(1536) == "1.5 KiB");
    CHECK(pulse::bytes_text(80e9) == "74.5 GiB");
}

TEST_CASE("the length of a bar is the duration, its place the time") {
    const std::vector<timeline_event> events{
        {.rank = 0, .kind = 'F', .stage = 0, .microbatch = 0, .start_us = 1000, .end_us = 2000},
        {.rank = 0, .kind = 'B', .stage = 0, .microbatch = 0, .start_us = 2000, .end_us = 5000}};
    const std::string svg = timeline_svg(events, {.width = 1094}); // 74 to 1074: 1000 pixels for 4000 us
    CHECK(svg.find("<rect x=\"74\" y=\"76\" width=\"250\"") != std::string::npos);
    CHECK(svg.find("<rect x=\"324\" y=\"76\" width=\"750\"") != std::string::npos);
    CHECK(svg.find("time, ms") != std::string::npos);
}

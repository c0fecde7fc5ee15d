#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <doctest/doctest.h>

#include <pictures/chrome_trace.hpp>

namespace {

using namespace pictures;
using nlohmann::json;

std::vector<timeline_event> random_events(std::mt19937_64& engine, std::size_t count) {
    std::vector<timeline_event> events(count);
    for (auto& event : events) {
        const double start = static_cast<double>(engine() % 1'000'000'000) / 1000.0;
        event = {.rank = static_cast<int>(engine() % 4),
                 .lane = static_cast<int>(engine() % 3),
                 .name = "n",
                 .kind = "FBWSV"[engine() % 5],
                 .stage = static_cast<int>(engine() % 5) - 1,
                 .microbatch = static_cast<int>(engine() % 5) - 1,
                 .start_us = start,
                 .end_us = start + static_cast<double>(engine() % 10'000'000) / 1000.0,
                 .bytes = static_cast<std::int64_t>(engine() % 100)};
        for (std::size_t i = engine() % 12; i != 0; --i) { event.name += static_cast<char>(engine()); }
    }
    return events;
}

} // namespace

TEST_CASE("a trace is JSON whose slices are the events, whatever their names") {
    std::mt19937_64 engine{1};
    for (int round = 0; round != 30; ++round) {
        const auto events = random_events(engine, 60);
        const json trace = json::parse(chrome_trace(events)); // throws on bad JSON or UTF-8
        std::size_t at = 0;
        for (const auto& entry : trace.at("traceEvents")) {
            if (entry.at("ph") != "X") { continue; }
            const auto& event = events.at(at++);
            CHECK(entry.at("pid") == event.rank);
            CHECK(entry.at("tid") == event.lane);
            CHECK(entry.at("ts").get<double>() == doctest::Approx(event.start_us).epsilon(1e-12));
            CHECK(std::abs(entry.at("dur").get<double>() - (event.end_us - event.start_us)) < 0.00051);
            CHECK(entry.at("args").value("stage", -1) == event.stage);
            CHECK(entry.at("args").value("microbatch", -1) == event.microbatch);
            CHECK(entry.at("args").value("bytes", 0) == event.bytes);
        }
        CHECK(at == events.size());
    }
}

TEST_CASE("valid text comes back as it was, damaged text stays valid") {
    const std::string text =
        "tab\t quote\" back\\ nul" + std::string(1, '\0') + " \xC3\xA9 \xE2\x82\xAC \xF0\x9F\x99\x82 \x7F";
    CHECK(json::parse("\"" + json_escaped(text) + "\"").get<std::string>() == text);
    for (const char* bad : {"\x80", "\xC3", "\xC0\x80", "\xED\xA0\x80", "\xE0\x80\x80", "\xF4\x90\x80\x80",
                            "\xF0\x80\x80\x80", "\xFF", "\xE2\x82", "\xF8\x88\x80\x80\x80"}) {
        const auto read = json::parse("\"" + json_escaped(bad) + "\"").get<std::string>();
        CHECK(read.find("\xEF\xBF\xBD") == 0);
    }
}

TEST_CASE("ranks and lanes are named once each") {
    std::mt19937_64 engine{2};
    const auto events = random_events(engine, 40);
    const json trace = json::parse(chrome_trace(events));
    std::set<int> ranks;
    std::set<std::pair<int, int>> lanes;
    for (const auto& event : events) {
        ranks.insert(event.rank);
        lanes.emplace(event.rank, event.lane);
    }
    std::set<int> named_ranks;
    std::set<std::pair<int, int>> named_lanes;
    for (const auto& entry : trace.at("traceEvents")) {
        if (entry.at("name") == "process_name") {
            CHECK(named_ranks.insert(entry.at("pid").get<int>()).second);
            CHECK(entry.at("args").at("name") == "rank " + std::to_string(entry.at("pid").get<int>()));
        }
        if (entry.at("name") == "thread_name") {
            CHECK(named_lanes.emplace(entry.at("pid").get<int>(), entry.at("tid").get<int>()).second);
        }
    }
    CHECK(named_ranks == ranks);
    CHECK(named_lanes == lanes);
}

TEST_CASE("an arrow leads from each send to its receive, and none without both") {
    std::vector<timeline_event> events;
    for (int i = 1; i <= 20; ++i) {
        events.push_back({.rank = 0, .lane = 1, .kind = 'S', .start_us = i * 10.0, .end_us = i * 10.0 + 5, .flow = i});
        if (i % 4 != 0) {
            events.push_back(
                {.rank = 1, .lane = 1, .kind = 'V', .start_us = i * 10.0 + 2, .end_us = i * 10.0 + 7, .flow = i});
        }
    }
    events.push_back({.rank = 1, .lane = 1, .kind = 'V', .start_us = 1, .end_us = 2, .flow = 99});
    const json trace = json::parse(chrome_trace(events));
    std::map<int, std::pair<double, double>> arrows;
    int ends = 0;
    for (const auto& entry : trace.at("traceEvents")) {
        if (entry.at("ph") == "s") {
            CHECK(entry.at("pid") == 0);
            arrows[entry.at("id").get<int>()].first = entry.at("ts").get<double>();
            ++ends;
        } else if (entry.at("ph") == "f") {
            CHECK(entry.at("pid") == 1);
            CHECK(entry.at("bp") == "e");
            arrows[entry.at("id").get<int>()].second = entry.at("ts").get<double>();
            ++ends;
        }
    }
    CHECK(arrows.size() == 15);
    CHECK(ends == 30);
    for (const auto& [id, times] : arrows) {
        CHECK(id % 4 != 0);
        CHECK(times.first == id * 10.0);
        CHECK(times.second == id * 10.0 + 7);
    }
}

TEST_CASE("counters become counter tracks") {
    const json trace = json::parse(
        chrome_trace({}, std::vector<trace_counter>{{2, "bytes \"held\"", 1.5, 4096}, {2, "bytes", -1, -2.25}}));
    std::vector<double> values;
    for (const auto& entry : trace.at("traceEvents")) {
        if (entry.at("ph") != "C") { continue; }
        CHECK(entry.at("pid") == 2);
        values.push_back(entry.at("args").at("value").get<double>());
    }
    CHECK(values == std::vector<double>{4096, -2.25});
    CHECK(json::parse(chrome_trace({})).at("traceEvents").empty());
}

#include "chrome_trace.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "timeline_event.hpp"

namespace pictures {

std::string json_escaped(std::string_view text) {
    const std::string quoted = nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    return quoted.substr(1, quoted.size() - 2);
}

namespace detail {

/// Microseconds to nanosecond precision, independent of locale; 0 if not finite.
[[nodiscard]] inline std::string trace_number(double value) {
    if (!std::isfinite(value) || std::abs(value) > 9e12) { return "0"; }
    const auto thousandths = static_cast<std::int64_t>(std::llround(std::abs(value) * 1000.0));
    std::string places = std::to_string(thousandths % 1000);
    places.insert(0, 3 - places.size(), '0');
    return (value < 0 && thousandths != 0 ? "-" : "") + std::to_string(thousandths / 1000) + "." + places;
}

} // namespace detail

std::string chrome_trace(std::span<const timeline_event> events, std::span<const trace_counter> counters) {
    std::string out = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[";
    bool first = true;
    const auto add = [&](const std::string& fields) {
        out += first ? "\n{" : ",\n{";
        out += fields + "}";
        first = false;
    };
    const auto place = [](int rank, int lane) {
        return "\"pid\":" + std::to_string(rank) + ",\"tid\":" + std::to_string(lane);
    };

    std::map<int, std::set<int>> lanes;
    std::map<std::int64_t, std::pair<bool, bool>> flows; // flow -> has a send, has a receive
    for (const timeline_event& event : events) {
        lanes[event.rank].insert(event.lane);
        if (event.flow > 0 && event.kind == 'S') { flows[event.flow].first = true; }
        if (event.flow > 0 && event.kind == 'V') { flows[event.flow].second = true; }
    }
    for (const trace_counter& counter : counters) { lanes[counter.rank]; }
    for (const auto& [rank, used] : lanes) {
        add("\"ph\":\"M\"," + place(rank, 0) + ",\"name\":\"process_name\",\"args\":{\"name\":\"rank " +
            std::to_string(rank) + "\"}");
        add("\"ph\":\"M\"," + place(rank, 0) +
            ",\"name\":\"process_sort_index\",\"args\":{\"sort_index\":" + std::to_string(rank) + "}");
        for (const int lane : used) {
            const std::string name = lane == 0 ? "compute" : "transfers " + std::to_string(lane);
            add("\"ph\":\"M\"," + place(rank, lane) + ",\"name\":\"thread_name\",\"args\":{\"name\":\"" + name + "\"}");
            add("\"ph\":\"M\"," + place(rank, lane) +
                ",\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":" + std::to_string(lane) + "}");
        }
    }

    for (const timeline_event& event : events) {
        std::string name = event.name;
        if (name.empty()) {
            name = std::string(1, event.kind);
            if (event.stage >= 0) { name += " stage " + std::to_string(event.stage); }
            if (event.microbatch >= 0) { name += " mb " + std::to_string(event.microbatch); }
        }
        std::string fields = "\"ph\":\"X\"," + place(event.rank, event.lane) + ",\"name\":\"" + json_escaped(name) +
                             "\",\"cat\":\"" + json_escaped(std::string_view{&event.kind, 1}) +
                             "\",\"ts\":" + detail::trace_number(event.start_us) +
                             ",\"dur\":" + detail::trace_number(event.end_us - event.start_us) + ",\"args\":{";
        std::string arguments;
        const auto argument = [&](const char* key, std::int64_t value) {
            arguments += (arguments.empty() ? "\"" : ",\"") + std::string{key} + "\":" + std::to_string(value);
        };
        if (event.stage >= 0) { argument("stage", event.stage); }
        if (event.microbatch >= 0) { argument("microbatch", event.microbatch); }
        if (event.bytes > 0) { argument("bytes", event.bytes); }
        fields += arguments + "}";
        add(fields);

        const auto flow = event.flow > 0 ? flows.find(event.flow) : flows.end();
        if (flow == flows.end() || !flow->second.first || !flow->second.second) { continue; }
        if (event.kind == 'S' || event.kind == 'V') {
            // Each end binds to its enclosing slice: an instant inside the slice, at its start and its end.
            const bool begins = event.kind == 'S';
            add(std::string{"\"ph\":\""} + (begins ? "s" : "f\",\"bp\":\"e") + "\"," + place(event.rank, event.lane) +
                ",\"name\":\"message\",\"cat\":\"message\",\"id\":" + std::to_string(event.flow) +
                ",\"ts\":" + detail::trace_number(begins ? event.start_us : event.end_us));
        }
    }
    for (const trace_counter& counter : counters) {
        add("\"ph\":\"C\"," + place(counter.rank, 0) + ",\"name\":\"" + json_escaped(counter.name) +
            "\",\"ts\":" + detail::trace_number(counter.time_us) +
            ",\"args\":{\"value\":" + detail::trace_number(counter.value) + "}");
    }
    out += "\n]}\n";
    return out;
}

} // namespace pictures

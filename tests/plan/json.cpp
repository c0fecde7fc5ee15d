#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <plan/random_plan.hpp>
#include <pulse/core/error.hpp>
#include <pulse/model/extent.hpp>
#include <pulse/plan/json.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/plan/planned.hpp>

using nlohmann::json;
using pulse::parse_plan;
using pulse_test::random_plans;

namespace {

/// Gives a plan frozen tasks after its passes: chains of calls, cut at random, in order, each on some device.
void add_frozen_tasks(random_plans& make, pulse::plan& p) {
    const auto devices = static_cast<std::size_t>(p.pipeline_degree);
    p.frozen_tasks.resize(devices);
    p.frozen_hosts.resize(devices);
    double now = p.order.makespan_us();
    const int samples = p.microbatches * p.microbatch_size;
    for (int c = make.between(1, 3); c-- > 0;) {
        const int layers = make.between(1, 4);
        for (int sample = 0; sample != samples;) {
            const int chunk = std::min(samples - sample, make.between(1, 3));
            for (int layer = 0; layer != layers;) {
                const int last = make.between(layer, layers - 1);
                const int device = make.between(0, p.pipeline_degree - 1);
                const auto d = static_cast<std::size_t>(device);
                p.frozen_tasks[d].push_back({c, layer, last, sample, chunk, device, now, now + 1.5});
                auto& hosted = p.frozen_hosts[d];
                if (std::find(hosted.begin(), hosted.end(), c) == hosted.end()) { hosted.push_back(c); }
                now += make.between(2, 3);
                layer = last + 1;
            }
            sample += chunk;
        }
    }
}

/// A random plan whose numbers use all their bits.
pulse::plan random_plan(random_plans& make) {
    pulse::plan p = make().planned;
    if (make.coin()) { add_frozen_tasks(make, p); }
    const double scale = std::uniform_real_distribution<double>{0.1, 10.0}(make.engine());
    for (auto& passes : p.order.devices) {
        for (auto& one : passes) {
            one.start_us *= scale;
            one.end_us *= scale;
        }
    }
    const auto real = [&] { return std::uniform_real_distribution<double>{0.0, 1.0}(make.engine()); };
    p.predicted = {p.order.makespan_us(),    real() * 1e6,         real(), real() / 3, {},
                   make.between(0, 1 << 30), std::int64_t{1} << 60};
    for (int d = 0; d != p.pipeline_degree && make.between(0, 3) != 0; ++d) {
        p.predicted.peak_memory_bytes.resize(static_cast<std::size_t>(p.pipeline_degree), std::int64_t{1} << 40);
    }
    for (auto& tasks : p.frozen_tasks) {
        for (auto& one : tasks) {
            one.start_us *= scale;
            one.end_us *= scale;
        }
    }
    if (make.coin()) { p.model = pulse::label{std::string_view{"\"quoted\" \\ \xc3\xa9"}}; }
    return p;
}

/// Whether the text is read as a plan (which must then survive writing and reading) or refused; anything else fails.
bool is_accepted(const std::string& text) {
    try {
        const pulse::plan read = parse_plan(text);
        CHECK(parse_plan(pulse::print_plan(read)) == read);
        return true;
    } catch (const pulse::input_error& e) {
        CHECK(std::string(e.what()).find("plan: ") == 0);
        return false;
    }
}

/// Collects a pointer to each value of a document.
void all_places(const json& value, const json::json_pointer& here, std::vector<json::json_pointer>& found) {
    found.push_back(here);
    if (value.is_object()) {
        for (const auto& entry : value.items()) { all_places(entry.value(), here / entry.key(), found); }
    } else if (value.is_array()) {
        for (std::size_t i = 0; i != value.size(); ++i) { all_places(value[i], here / i, found); }
    }
}

} // namespace

TEST_CASE("a plan that is written and read is the same plan") {
    random_plans make{41};
    for (int i = 0; i != 500; ++i) {
        const pulse::plan p = random_plan(make);
        const std::string text = pulse::print_plan(p);
        CHECK(parse_plan(text) == p);
        CHECK(pulse::print_plan(parse_plan(text)) == text);
    }
}

TEST_CASE("optional fields have the defaults of the format") {
    random_plans make{42};
    pulse::plan p = random_plan(make);
    p.routing = pulse::skip_routing::direct;
    p.recompute = pulse::recomputation::none;
    json value = json::parse(pulse::print_plan(p));
    value.erase("skip_routing");
    value.erase("recomputation");
    CHECK(parse_plan(value.dump()) == p);
}

TEST_CASE("the name that recomputation had is still read") {
    random_plans make{42};
    for (const auto& [word, kind] :
         {std::pair{"resident", pulse::recomputation::none}, std::pair{"recomputed", pulse::recomputation::skips}}) {
        pulse::plan p = random_plan(make);
        p.recompute = kind;
        json value = json::parse(pulse::print_plan(p));
        value.erase("recomputation");
        value["skip_policy"] = word;
        CHECK(parse_plan(value.dump()) == p);
    }
}

TEST_CASE("a plan that does not say how many spare sends it has gets those of a new one, and no negative number") {
    random_plans make{44};
    pulse::plan p = random_plan(make);
    p.spare_sends = 7;
    json value = json::parse(pulse::print_plan(p));
    CHECK(parse_plan(value.dump()).spare_sends == 7);
    value.erase("spare_sends");
    p.spare_sends = pulse::plan{}.spare_sends;
    CHECK(parse_plan(value.dump()) == p);
    for (const int wrong : {-1, 1 << 30}) {
        value["spare_sends"] = wrong;
        CHECK_THROWS_WITH_AS((void)parse_plan(value.dump()), doctest::Contains("spare_sends"), pulse::input_error);
    }
}

TEST_CASE("a plan keeps how many replicas of a node sum first, and one that does not say it has none that do") {
    random_plans make{45};
    pulse::plan p = random_plan(make);
    for (p.data_degree = 1; p.data_degree != 13; ++p.data_degree) {
        for (p.node_replicas = -1; p.node_replicas != 14; ++p.node_replicas) {
            bool good = p.node_replicas == 1;
            for (const int power : {2, 4, 8}) {
                good = good || (p.node_replicas == power && power < p.data_degree && p.data_degree % power == 0);
            }
            CAPTURE(p.data_degree);
            CAPTURE(p.node_replicas);
            if (!good) {
                CHECK_THROWS_WITH_AS((void)pulse::print_plan(p), doctest::Contains("plan: node_replicas must be 1 or"),
                                     pulse::input_error);
                continue;
            }
            const std::string text = pulse::print_plan(p);
            CHECK(parse_plan(text) == p);
            CHECK((text.find("node_replicas") == std::string::npos) == (p.node_replicas == 1));
        }
    }
}

TEST_CASE(
    "a plan that encodes nothing is written as plans of before, and frozen_tasks and frozen_hosts come together") {
    random_plans make{48};
    pulse::plan p = make().planned;
    p.predicted.bubble_ratio = 0.5;
    CHECK(pulse::print_plan(p).find("frozen") == std::string::npos);
    add_frozen_tasks(make, p);
    for (const char* name : {"frozen_tasks", "frozen_hosts"}) {
        json value = json::parse(pulse::print_plan(p));
        value.erase(name);
        const std::string missing = std::string{name} + " is missing";
        CHECK_THROWS_WITH_AS((void)parse_plan(value.dump()), doctest::Contains(missing.c_str()), pulse::input_error);
    }
}

TEST_CASE("a plan without one of its fields is refused by the field's name") {
    random_plans make{43};
    for (int i = 0; i != 12; ++i) {
        const json value = json::parse(pulse::print_plan(random_plan(make)));
        std::vector<json::json_pointer> places{};
        all_places(value, json::json_pointer{}, places);
        for (const auto& place : places) {
            if (place.empty()) { continue; }
            json damaged = value;
            json& parent = damaged[place.parent_pointer()];
            const std::string name = place.back();
            if (name == "skip_routing" || name == "recomputation" || name == "spare_sends" ||
                place.to_string().find("peak_memory_bytes/") != std::string::npos) {
                continue;
            }
            // A device may have fewer tasks.
            if (parent.is_array() && place.to_string().rfind("/frozen_tasks/", 0) == 0) { continue; }
            if (parent.is_object()) {
                parent.erase(name);
            } else {
                parent.erase(static_cast<std::size_t>(std::stoul(name)));
            }
            try {
                (void)parse_plan(damaged.dump());
                FAIL_CHECK("accepted without " << place.to_string());
            } catch (const pulse::input_error& e) {
                if (parent.is_object()) {
                    CHECK(std::string(e.what()).find(name + " is missing") != std::string::npos);
                }
            }
        }
    }
}

TEST_CASE("a value of a wrong type, sign or size is refused or is a plan") {
    random_plans make{44};
    const std::vector<json> others{nullptr,
                                   true,
                                   "F",
                                   "",
                                   -1,
                                   0,
                                   1,
                                   2,
                                   1.5,
                                   -0.5,
                                   1e300,
                                   json::array(),
                                   json::object(),
                                   std::numeric_limits<std::int64_t>::max(),
                                   std::numeric_limits<std::uint64_t>::max(),
                                   std::numeric_limits<std::int32_t>::max(),
                                   std::numeric_limits<std::int32_t>::min()};
    int accepted = 0;
    int refused = 0;
    for (int i = 0; i != 6; ++i) {
        const json value = json::parse(pulse::print_plan(random_plan(make)));
        std::vector<json::json_pointer> places{};
        all_places(value, json::json_pointer{}, places);
        for (const auto& place : places) {
            for (const json& other : others) {
                // Long schedules have many values of one kind.
                if (places.size() > 200 && make.between(0, 39) != 0) { continue; }
                json damaged = value;
                damaged[place] = other;
                ++(is_accepted(damaged.dump()) ? accepted : refused);
            }
        }
    }
    CHECK(accepted > 0);
    CHECK(refused > 10 * accepted);
}

TEST_CASE("a truncated file is refused, and one with changed bytes is refused or is a plan") {
    random_plans make{45};
    int accepted = 0;
    int refused = 0;
    for (int i = 0; i != 40; ++i) {
        const std::string text = pulse::print_plan(random_plan(make));
        for (int k = 0; k != 20; ++k) {
            CHECK(!is_accepted(
                text.substr(0, static_cast<std::size_t>(make.between(0, static_cast<int>(text.size()) - 3)))));
            std::string flipped = text;
            for (int flips = make.between(1, 3); flips != 0; --flips) {
                char& c = flipped[static_cast<std::size_t>(make.between(0, static_cast<int>(text.size()) - 1))];
                c = make.coin() ? static_cast<char>(c ^ (1 << make.between(0, 7)))
                                : static_cast<char>(make.between(0, 255));
            }
            ++(is_accepted(flipped) ? accepted : refused);
        }
    }
    CHECK(accepted > 0);
    CHECK(refused > accepted);
}

TEST_CASE("a plan that could not be read back is not written") {
    random_plans make{46};
    pulse::plan p = random_plan(make);
    p.predicted.step_us = std::numeric_limits<double>::quiet_NaN();
    CHECK_THROWS_WITH_AS((void)pulse::print_plan(p), "plan: predicted.step_us must be finite", pulse::input_error);
    p = random_plan(make);
    p.model = pulse::label{std::string_view{"\xff\xfe"}};
    CHECK_THROWS_WITH_AS((void)pulse::print_plan(p), "plan: model is not UTF-8", pulse::input_error);
}

TEST_CASE("a saved plan is there whole, and a failure leaves what was there") {
    namespace fs = std::filesystem;
    const fs::path folder = fs::temp_directory_path() / ("pulse_test_plan_" + std::to_string(::getpid()));
    fs::create_directories(folder);
    random_plans make{47};
    using plans = std::vector<pulse::extent_plan>;
    const plans p{{.plan = random_plan(make)}};
    const plans q{{.plan = random_plan(make)}};
    pulse::save_plans(p, folder / "plan.json");
    CHECK(pulse::load_plans(folder / "plan.json") == p);
    pulse::save_plans(q, folder / "plan.json");
    CHECK(pulse::load_plans(folder / "plan.json") == q);
    plans broken = p;
    broken.front().plan.microbatches = 0;
    CHECK_THROWS_AS(pulse::save_plans(broken, folder / "plan.json"), pulse::input_error);
    CHECK(pulse::load_plans(folder / "plan.json") == q);
    fs::create_directory(folder / "taken");
    CHECK_THROWS_WITH_AS(pulse::save_plans(p, folder / "taken"), doctest::Contains("taken: cannot be written"),
                         pulse::input_error);
    CHECK_THROWS_AS(pulse::save_plans(p, folder / "absent" / "plan.json"), pulse::input_error);
    CHECK_THROWS_WITH_AS((void)pulse::load_plans(folder / "absent"), doctest::Contains("cannot be read"),
                         pulse::input_error);
    CHECK_THROWS_WITH_AS((void)pulse::load_plans(folder), doctest::Contains("is a folder"), pulse::input_error);
    int left = 0;
    for (const auto& entry : fs::directory_iterator(folder)) { left += entry.path().filename() == "taken" ? 0 : 1; }
    CHECK(left == 1);
    fs::remove_all(folder);
}

TEST_CASE("plans of several extents are read as they were printed, and one without extents is the file of before") {
    random_plans make{17};
    for (int i = 0; i != 40; ++i) {
        std::vector<pulse::extent_plan> all;
        pulse::plan common = random_plan(make);
        common.frozen_tasks.clear();
        common.frozen_hosts.clear();
        const int extents = make.between(2, 4);
        for (int e = 0; e != extents; ++e) {
            all.push_back({{make.between(1, 200), make.between(1, 200)}, 1.0 / extents, common});
            pulse::plan& one = all.back().plan;
            one.spare_sends = make.between(0, 3);
            one.predicted.step_us = 1.0 / make.between(1, 1000);
            for (auto& passes : one.order.devices) {
                for (auto& p : passes) {
                    p.start_us *= e + 1;
                    p.end_us *= e + 1;
                }
            }
        }
        const std::string text = pulse::print_plans(all);
        CHECK(pulse::parse_plans(text) == all);
        CHECK_THROWS_WITH_AS((void)parse_plan(text, "here"), doctest::Contains("here: extents"), pulse::input_error);
        CHECK(pulse::print_plans({{.plan = common}}) == pulse::print_plan(common));
        CHECK(pulse::parse_plans(pulse::print_plan(common)) == std::vector<pulse::extent_plan>{{.plan = common}});

        const auto refused = [&](const char* part, const auto& change) {
            json value = json::parse(text);
            change(value);
            CHECK_THROWS_WITH_AS((void)pulse::parse_plans(value.dump()), doctest::Contains(part), pulse::input_error);
        };
        refused("extents[1].share", [](json& v) { v["extents"][1]["share"] = 0; });
        refused("extents[0].height", [](json& v) { v["extents"][0]["height"] = 0; });
        refused("extents[0].width", [](json& v) { v["extents"][0].erase("width"); });
        refused("extents[1].schedule", [](json& v) { v["extents"][1].erase("schedule"); });
        refused("spare_sends", [](json& v) { v["spare_sends"] = 2; });
        refused("extents", [](json& v) { v["extents"] = json::array(); });
        refused("extents[0] has the field 'stages'", [](json& v) { v["extents"][0]["stages"] = v["stages"]; });
        all.back().plan.data_degree += 1;
        CHECK_THROWS_WITH_AS((void)pulse::print_plans(all), doctest::Contains("differ"), pulse::input_error);
    }
}

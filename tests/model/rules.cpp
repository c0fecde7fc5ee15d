#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/model/rules.hpp>

namespace rules_test {

// The rules as a function of values, compared with a second statement that shares no code: brute force lists every
// broken rule, and inspect_model must name one of them.

namespace {

using pulse::model_rule;

constexpr std::array<pulse::shape_facts, 4> tags{pulse::shape_facts{1, {4}}, pulse::shape_facts{1, {5}},
                                                 pulse::shape_facts{2, {4}}, pulse::shape_facts{0, {}}};
constexpr pulse::shape_facts none{};

struct instance {
    std::vector<pulse::layer_facts> layers{};
    std::vector<pulse::skip_ends> skips{};
    pulse::shape_facts conditioning{};
    pulse::shape_facts context{};

    [[nodiscard]] pulse::model_rule found() const {
        return pulse::inspect_model(layers, skips, conditioning, context).broken;
    }
};

pulse::label letter(int index) {
    return pulse::label{std::string_view{std::string(1, static_cast<char>('a' + index))}};
}

/// A model that keeps every rule: a chain of one shape with forward skips and no repeated target.
instance correct(std::mt19937& random) {
    const int count = std::uniform_int_distribution<int>{1, 8}(random);
    instance made;
    for (int i = 0; i != count; ++i) {
        made.layers.push_back({.name = letter(i), .input = tags[0], .output = tags[0]});
    }
    for (int to = 1; to != count; ++to) {
        if (random() % 2 == 0) { continue; }
        const int from = std::uniform_int_distribution<int>{0, to - 1}(random);
        made.skips.push_back({letter(from), letter(to)});
        made.layers[static_cast<std::size_t>(to)].skip_input = tags[0];
    }
    std::shuffle(made.skips.begin(), made.skips.end(), random);
    if (random() % 2 == 0) { made.conditioning = tags[3]; }
    if (random() % 2 == 0) { made.context = tags[2]; }
    for (auto& node : made.layers) {
        if (made.conditioning.present() && random() % 2 == 0) { node.conditioning = tags[3]; }
        if (made.context.present() && random() % 2 == 0) { node.context = tags[2]; }
    }
    return made;
}

/// Makes one or two random changes, which may or may not break a rule.
void disturb(instance& model, std::mt19937& random) {
    const auto some_layer = [&]() -> pulse::layer_facts& { return model.layers[random() % model.layers.size()]; };
    const auto some_name = [&] { return letter(static_cast<int>(random() % 10)); };
    const auto some_tag = [&]() -> pulse::shape_facts {
        return random() % 3 == 0 ? none : tags[random() % tags.size()];
    };
    switch (random() % 11) {
    case 0: some_layer().name = some_name(); break;
    case 1: some_layer().input = tags[random() % tags.size()]; break;
    case 2: some_layer().output = tags[random() % tags.size()]; break;
    case 3: some_layer().skip_input = some_tag(); break;
    case 4: some_layer().conditioning = some_tag(); break;
    case 5: model.conditioning = some_tag(); break;
    case 6: model.skips.push_back({some_name(), some_name()}); break;
    case 7: some_layer().context = some_tag(); break;
    case 8: model.context = some_tag(); break;
    case 9: {
        // A second edge to an existing target.
        if (model.skips.empty()) { break; }
        pulse::skip_ends again = model.skips[random() % model.skips.size()];
        again.from = some_name();
        model.skips.push_back(again);
        break;
    }
    default:
        if (!model.skips.empty()) { model.skips[random() % model.skips.size()].from = some_name(); }
    }
}

std::set<model_rule> broken_rules(const instance& model) {
    std::set<model_rule> broken;
    std::map<std::string, std::vector<std::size_t>> places;
    for (std::size_t i = 0; i != model.layers.size(); ++i) { places[model.layers[i].name.str()].push_back(i); }
    for (const auto& [name, at] : places) {
        if (at.size() > 1) { broken.insert(model_rule::names_differ); }
    }
    for (std::size_t i = 0; i + 1 < model.layers.size(); ++i) {
        if (model.layers[i].output != model.layers[i + 1].input) { broken.insert(model_rule::neighbours_agree); }
    }
    std::map<std::string, int> arrivals;
    for (const auto& edge : model.skips) {
        ++arrivals[edge.to.str()];
        const bool known_from = places.contains(edge.from.str());
        const bool known_to = places.contains(edge.to.str());
        if (!known_from) { broken.insert(model_rule::skip_source_exists); }
        if (!known_to) { broken.insert(model_rule::skip_target_exists); }
        if (!known_from || !known_to) { continue; }
        const std::size_t from = places[edge.from.str()].front();
        const std::size_t to = places[edge.to.str()].front();
        if (to <= from) { broken.insert(model_rule::skip_goes_forward); }
        if (model.layers[to].skip_input == none) {
            broken.insert(model_rule::skip_target_concatenates);
        } else if (model.layers[to].skip_input != model.layers[from].output) {
            broken.insert(model_rule::skip_shape_agrees);
        }
    }
    for (const auto& [name, count] : arrivals) {
        if (count > 1) { broken.insert(model_rule::one_skip_per_layer); }
    }
    for (const auto& node : model.layers) {
        if (node.context.present() && model.context == none) { broken.insert(model_rule::context_is_given); }
        if (node.context.present() && model.context.present() && node.context != model.context) {
            broken.insert(model_rule::context_agrees);
        }
        if (node.skip_input != none && !arrivals.contains(node.name.str())) {
            broken.insert(model_rule::concatenation_is_fed);
        }
        if (node.conditioning.present() && model.conditioning == none) {
            broken.insert(model_rule::conditioning_is_given);
        }
        if (node.conditioning.present() && model.conditioning.present() && node.conditioning != model.conditioning) {
            broken.insert(model_rule::conditioning_agrees);
        }
    }
    return broken;
}

} // namespace

TEST_CASE("a model that keeps every rule is accepted") {
    std::mt19937 random{11};
    for (int round = 0; round != 2000; ++round) {
        const instance model = correct(random);
        REQUIRE(broken_rules(model).empty());
        CHECK(model.found() == model_rule::kept);
    }
}

TEST_CASE("what is found is broken, and what is broken is found") {
    std::mt19937 random{12};
    std::map<model_rule, int> seen;
    for (int round = 0; round != 20000; ++round) {
        instance model = correct(random);
        disturb(model, random);
        if (random() % 2 == 0) { disturb(model, random); }
        const auto broken = broken_rules(model);
        const model_rule found = model.found();
        CHECK(broken.empty() == (found == model_rule::kept));
        if (found != model_rule::kept) { CHECK(broken.contains(found)); }
        ++seen[found];
    }
    // every rule but the one about models without layers
    CHECK(seen.size() == 14);
    CHECK(pulse::inspect_model({}, {}, none).broken == model_rule::has_layers);
}

} // namespace rules_test

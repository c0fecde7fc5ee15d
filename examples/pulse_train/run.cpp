#include "run.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include <pulse/core/error.hpp>

namespace pulse_train {

namespace {

struct job {
    std::string model{};
    std::string second{};
    backend_kind where{};
    precision_kind precision{};
    run_function run{};
    fault_function why_not{};
};

std::vector<job>& jobs() {
    static std::vector<job> all;
    return all;
}

/// Throws input_error if this build has no models for the backend.
void require_backend(const arguments& a) {
    if (std::ranges::none_of(jobs(), [&](const job& one) { return one.where == a.backend; })) {
        throw pulse::input_error{"--backend cuda: this build has no CUDA"};
    }
}
[[nodiscard]] std::string place_of(const arguments& a) {
    return a.backend == backend_kind::cuda ? std::string{"on cuda in "} + name_of(a.precision) : "on the host";
}
/// The end of an error: how to build the program with a model of the zoo or of a folder.
[[nodiscard]] std::string other_build(const arguments& a, const std::string& model) {
    const bool cuda = a.backend == backend_kind::cuda;
    return std::string{"; one configured with -DPULSE_TRAIN_"} + (cuda ? "CUDA=" : "HOST=") + model +
           (cuda ? std::string{":"} + name_of(a.precision) : std::string{}) + " does";
}

} // namespace

registration::registration(const char* model, const char* second, backend_kind where, precision_kind precision,
                           run_function run, fault_function why_not) {
    jobs().push_back({model, second, where, precision, run, why_not});
}

std::vector<std::string> trained_models() {
    std::vector<std::string> names;
    for (const job& one : jobs()) {
        names.push_back(one.model);
        if (!one.second.empty()) { names.push_back(one.second); }
    }
    return names;
}

std::string model_of_folder(const arguments& a) {
    require_backend(a);
    std::vector<std::string> tried;
    std::vector<std::string> found;
    std::string why;
    for (const job& one : jobs()) {
        if (one.where != a.backend || one.precision != a.precision || one.second != a.cascade_with) { continue; }
        tried.push_back(one.model);
        why = one.why_not(a.from);
        if (why.empty()) { found.push_back(one.model); }
    }
    if (found.size() == 1) { return found.front(); }
    if (!found.empty()) {
        std::sort(found.begin(), found.end());
        throw pulse::input_error{"--model: the backbone of --from fits both " + found[0] + " and " + found[1] +
                                 "; choose one with --model"};
    }
    if (tried.size() == 1) { throw pulse::input_error{"--from: " + why}; }
    std::string names;
    for (const std::string& one : tried) { names += (names.empty() ? "" : ", ") + one; }
    throw pulse::input_error{"--from: its backbone is not one that this build trains " + place_of(a) + " (" +
                             (names.empty() ? "it trains none there" : names) + ")" +
                             other_build(a, std::filesystem::absolute(a.from).lexically_normal().string())};
}

run_function run_for(const arguments& a) {
    const auto found = std::ranges::find_if(jobs(), [&](const job& one) {
        return one.model == a.model && one.second == a.cascade_with && one.where == a.backend &&
               one.precision == a.precision;
    });
    if (found != jobs().end()) { return found->run; }
    require_backend(a);
    if (!a.cascade_with.empty()) {
        throw pulse::input_error{"--cascade-with: this build does not train a cascade of " + a.model + " and " +
                                 a.cascade_with + " " + place_of(a) + other_build(a, a.model + "+" + a.cascade_with)};
    }
    throw pulse::input_error{"--model: this build does not train " + a.model + " " + place_of(a) +
                             other_build(a, a.model)};
}

} // namespace pulse_train

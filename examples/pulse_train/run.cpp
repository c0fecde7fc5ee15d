#include "run.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include <pulse/core/error.hpp>

namespace pulse_train {

namespace {

struct job {
    std::string model{};
    backend_kind where{};
    precision_kind precision{};
    run_function run{};
    fault_function why_not{};
};

std::vector<job>& jobs() {
    static std::vector<job> all;
    return all;
}

} // namespace

registration::registration(const char* model, backend_kind where, precision_kind precision, run_function run,
                           fault_function why_not) {
    jobs().push_back({model, where, precision, run, why_not});
}

std::vector<std::string> trained_models() {
    std::vector<std::string> names;
    for (const job& one : jobs()) { names.push_back(one.model); }
    return names;
}

std::string model_of_folder(const arguments& a) {
    const bool cuda = a.backend == backend_kind::cuda;
    std::vector<std::string> found;
    std::string others;
    std::string why;
    for (const job& one : jobs()) {
        if (one.where != a.backend || one.precision != a.precision) { continue; }
        why = one.why_not(a.from);
        if (why.empty()) { found.push_back(one.model); }
        others += (others.empty() ? "" : ", ") + one.model;
    }
    if (found.size() == 1) { return found.front(); }
    if (!found.empty()) {
        std::sort(found.begin(), found.end());
        throw pulse::input_error{"--model: the backbone of --from is " + found[0] + " and " + found[1] +
                                 "; which is meant is not said"};
    }
    if (others.find(',') == std::string::npos && !others.empty()) { throw pulse::input_error{"--from: " + why}; }
    if (others.empty() && std::ranges::none_of(jobs(), [&](const job& one) { return one.where == a.backend; })) {
        throw pulse::input_error{"--backend cuda: this build has no CUDA"};
    }
    const std::string precision = cuda ? std::string{":"} + name_of(a.precision) : std::string{};
    throw pulse::input_error{"--from: its backbone is none that this build trains " +
                             (cuda ? std::string{"on cuda in "} + name_of(a.precision) : std::string{"on the host"}) +
                             " (" + (others.empty() ? "there is none" : others) +
                             "); one that is configured with -DPULSE_TRAIN_" + (cuda ? "CUDA=" : "HOST=") +
                             std::filesystem::absolute(a.from).lexically_normal().string() + precision + " does"};
}

run_function run_for(const arguments& a) {
    const auto find = [&](const auto& fits) { return std::ranges::find_if(jobs(), fits); };
    const auto found = find(
        [&](const job& one) { return one.model == a.model && one.where == a.backend && one.precision == a.precision; });
    if (found != jobs().end()) { return found->run; }
    if (find([&](const job& one) { return one.where == a.backend; }) == jobs().end()) {
        throw pulse::input_error{"--backend cuda: this build has no CUDA"};
    }
    const bool cuda = a.backend == backend_kind::cuda;
    throw pulse::input_error{"--model: this build does not train " + a.model +
                             (cuda ? std::string{" on cuda in "} + name_of(a.precision) : std::string{" on the host"}) +
                             "; one that is configured with -DPULSE_TRAIN_" + (cuda ? "CUDA=" : "HOST=") + a.model +
                             (cuda ? std::string{":"} + name_of(a.precision) : std::string{}) + " does"};
}

} // namespace pulse_train

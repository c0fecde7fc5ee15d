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
};

std::vector<job>& jobs() {
    static std::vector<job> all;
    return all;
}

} // namespace

registration::registration(const char* model, backend_kind where, precision_kind precision, run_function run) {
    jobs().push_back({model, where, precision, run});
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

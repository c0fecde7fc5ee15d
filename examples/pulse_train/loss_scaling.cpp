#include "loss_scaling.hpp"

#include <charconv>
#include <system_error>

#include <pulse/core/error.hpp>

#include "setup.hpp"

namespace pulse_train {

namespace {

constexpr const char* scale_key = "loss_scale";
constexpr const char* good_key = "loss_scale_good_steps";
constexpr const char* skipped_key = "loss_scale_skipped_steps";

template <class Number>
void read(const std::map<std::string, std::string>& config, const char* key, Number& value) {
    const auto found = config.find(key);
    const std::string text = found == config.end() ? "" : found->second;
    const char* const end = text.data() + text.size();
    const auto [stop, fault] = std::from_chars(text.data(), end, value);
    if (fault != std::errc{} || stop != end || !(value >= 0)) {
        throw pulse::input_error{std::string{"--resume: '"} + key + "' is '" + text + "' in the checkpoint"};
    }
}

} // namespace

void add_to(std::map<std::string, std::string>& config, const loss_scaling& now) {
    if (!(now.scale > 0)) { return; }
    config[scale_key] = exact(now.scale);
    config[good_key] = std::to_string(now.good_steps);
    config[skipped_key] = std::to_string(now.skipped_steps);
}

loss_scaling loss_scaling_in(const std::map<std::string, std::string>& config) {
    loss_scaling kept;
    if (!config.contains(scale_key)) { return kept; }
    read(config, scale_key, kept.scale);
    read(config, good_key, kept.good_steps);
    read(config, skipped_key, kept.skipped_steps);
    return kept;
}

} // namespace pulse_train

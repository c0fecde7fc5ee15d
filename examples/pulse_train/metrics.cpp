#include "metrics.hpp"

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <pulse/core/error.hpp>
#include <pulse/io/atomic_file.hpp>

#include "artifacts.hpp"

namespace pulse_train {

namespace {

/// The lines of a file, which may be missing, for steps before `first_step`. The last line may be incomplete if the run
/// was killed.
std::string lines_before(const std::filesystem::path& path, std::int64_t first_step) {
    std::error_code unused;
    if (!std::filesystem::exists(path, unused)) { return {}; }
    std::istringstream file{pulse::io::read_file(path)};
    std::string kept;
    for (std::string line; std::getline(file, line);) {
        const auto read = nlohmann::json::parse(line, nullptr, false);
        if (!read.is_object() || !read.contains("step") || !read["step"].is_number_integer()) { continue; }
        if (read["step"].get<std::int64_t>() < first_step) { kept += line + "\n"; }
    }
    return kept;
}

} // namespace

template <class Write>
void metrics::attempt(const Write& write) {
    if (failed_) { return; }
    try {
        write();
    } catch (const pulse::input_error& e) {
        failed_ = true;
        std::fprintf(stderr, "pulse_train: %s; no metrics are written any more\n", e.what());
    }
}

void metrics::open(std::int64_t first_step) {
    if (events_) { return; }
    const std::filesystem::path path = folder_ / metrics_name;
    const std::int64_t kept = goes_on_ ? first_step : 0;
    pulse::io::write_file(path, lines_before(path, kept));
    lines_.open(path, std::ios::app);
    make_folder(folder_ / tensorboard_name);
    events_.emplace(folder_ / tensorboard_name, kept);
}

void metrics::write_line(std::int64_t step, const nlohmann::ordered_json& line,
                         const std::vector<std::pair<std::string, double>>& numbers) {
    lines_ << line.dump() << "\n" << std::flush;
    if (!lines_) { throw pulse::input_error{(folder_ / metrics_name).string() + " cannot be written"}; }
    events_->add_numbers(step, numbers);
}

void metrics::step_done(const step_metrics& made) {
    attempt([&] {
        open(made.step);
        if (made.step % every_ != 0) { return; }
        std::vector<std::pair<std::string, double>> numbers{{"loss", made.loss}};
        for (std::size_t b = 0; b != made.losses.size(); ++b) {
            numbers.emplace_back("loss_of/" + std::to_string(b + 1), made.losses[b]);
        }
        if (std::isfinite(made.gradient_norm)) { numbers.emplace_back("gradient_norm", made.gradient_norm); }
        numbers.emplace_back("learning_rate", made.learning_rate);
        numbers.emplace_back("samples_per_s", made.samples_per_s);
        if (made.loss_scale) { numbers.emplace_back("loss_scale", *made.loss_scale); }
        nlohmann::ordered_json line{{"step", made.step}};
        for (const auto& [name, value] : numbers) { line[name] = value; }
        if (made.skipped) { line["skipped"] = true; }
        write_line(made.step, line, numbers);
    });
}

void metrics::validated(const validation_loss& made, const std::vector<int>& times) {
    attempt([&] {
        open(made.step + 1); // if no step was made, steps begin after it
        std::vector<std::pair<std::string, double>> numbers{{"validation_loss", made.loss}};
        nlohmann::ordered_json line{{"step", made.step}, {"validation_loss", made.loss}};
        for (std::size_t i = 0; i != times.size(); ++i) {
            const std::string time = std::to_string(times[i]);
            line["validation_loss_at"][time] = made.at_time[i];
            numbers.emplace_back("validation_loss_at/" + time, made.at_time[i]);
        }
        write_line(made.step, line, numbers);
    });
}

void metrics::drawn(std::int64_t step, const std::filesystem::path& file) {
    attempt([&] {
        if (!events_) { return; }
        events_->add_picture(step, "drawn", pulse::io::read_file(file));
    });
}

} // namespace pulse_train

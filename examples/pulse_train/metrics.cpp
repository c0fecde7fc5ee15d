#include "metrics.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <pulse/core/error.hpp>
#include <pulse/io/atomic_file.hpp>

#include "artifacts.hpp"

namespace pulse_train {

namespace {

/// The lines of a file, which may be none, that are of steps before `first_step`. The last may be half a line, of a run
/// that was killed.
std::string lines_before(const std::filesystem::path& path, std::int64_t first_step) {
    std::ifstream file{path};
    std::string kept;
    for (std::string line; std::getline(file, line);) {
        const auto read = nlohmann::json::parse(line, nullptr, false);
        if (!read.is_object() || !read.contains("step") || !read["step"].is_number_integer()) { continue; }
        if (read["step"].get<std::int64_t>() < first_step) { kept += line + "\n"; }
    }
    return kept;
}

std::uint32_t big_endian(std::string_view bytes) {
    std::uint32_t value = 0;
    for (const char byte : bytes) { value = value << 8 | static_cast<unsigned char>(byte); }
    return value;
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
    pulse::io::write_file(path, lines_before(path, first_step));
    lines_.open(path, std::ios::app);
    if (first_step == 1) { event_file::remove_all(folder_ / tensorboard_name); }
    events_.emplace(folder_ / tensorboard_name, first_step);
}

void metrics::step_done(const step_metrics& made) {
    attempt([&] {
        open(made.step);
        if (made.step % every_ != 0) { return; }
        std::vector<std::pair<std::string, double>> numbers{{"loss", made.loss},
                                                            {"gradient_norm", made.gradient_norm},
                                                            {"learning_rate", made.learning_rate},
                                                            {"samples_per_s", made.samples_per_s}};
        if (made.loss_scale != 1) { numbers.emplace_back("loss_scale", made.loss_scale); }
        nlohmann::ordered_json line{{"step", made.step}};
        for (const auto& [name, value] : numbers) { line[name] = value; }
        if (made.skipped) { line["skipped"] = true; }
        lines_ << line.dump() << "\n" << std::flush;
        if (!lines_) { throw pulse::input_error{(folder_ / metrics_name).string() + " cannot be written"}; }
        events_->add_numbers(made.step, numbers);
    });
}

void metrics::drawn(std::int64_t step, const std::filesystem::path& file) {
    attempt([&] {
        open(step + 1);
        std::ifstream bytes{file, std::ios::binary};
        const std::string png{std::istreambuf_iterator<char>{bytes}, {}};
        // The size stands at the beginning of a PNG, behind its signature and the length and name of its first chunk.
        constexpr std::size_t width_at = 16;
        if (png.size() < width_at + 8) { throw pulse::input_error{file.string() + " cannot be read"}; }
        const std::string_view size = std::string_view{png}.substr(width_at, 8);
        events_->add_picture(step, "drawn", png, static_cast<int>(big_endian(size.substr(0, 4))),
                             static_cast<int>(big_endian(size.substr(4))));
    });
}

} // namespace pulse_train

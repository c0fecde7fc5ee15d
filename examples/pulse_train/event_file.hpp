#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace pulse_train {

/// A TensorBoard event file: numbers and pictures by step, each on disk when a call returns. Every failure throws
/// input_error with the name of the file or folder.
///
/// Source: TensorFlow's TFRecord framing, event.proto and summary.proto.
class event_file {
public:
    /// Creates a file in `folder`, copies the events of steps before `first_step` from earlier runs' files there and
    /// deletes those.
    event_file(const std::filesystem::path& folder, std::int64_t first_step);

    void add_numbers(std::int64_t step, std::span<const std::pair<std::string, double>> numbers);
    /// `png` holds a complete file.
    void add_picture(std::int64_t step, std::string_view tag, std::string_view png);

private:
    void write(std::int64_t step, std::string_view content);
    void write_record(std::string_view event);

    std::filesystem::path path_;
    std::ofstream file_;
};

} // namespace pulse_train

#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace pulse_train {

/// An event file of TensorBoard: numbers and pictures by step, each in the file when a call returns. Every failure
/// throws input_error with the name of the file or folder.
///
/// Source: TensorFlow's TFRecord framing, event.proto and summary.proto.
class event_file {
public:
    /// Makes a file in `folder`. What files of runs before have there of steps before `first_step` goes
    /// into it, and they go.
    event_file(const std::filesystem::path& folder, std::int64_t first_step);

    void add_numbers(std::int64_t step, std::span<const std::pair<std::string, double>> numbers);
    /// `png` is a whole file.
    void add_picture(std::int64_t step, std::string_view tag, std::string_view png);

private:
    void write(std::int64_t step, std::string_view content);
    void write_record(std::string_view event);

    std::filesystem::path path_;
    std::ofstream file_;
};

} // namespace pulse_train

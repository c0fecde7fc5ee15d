#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace pulse_train {

/// An event file of TensorBoard: numbers and pictures by step, each in the file when a call returns. Every failure throws input_error
/// with the file's name.
///
/// Source: TensorFlow's TFRecord framing and event.proto, summary.proto.
class event_file {
public:
    /// Makes a file of its own in `folder`, which is made. Of runs before, readers leave out what is of `first_step` or
    /// later.
    event_file(const std::filesystem::path& folder, std::int64_t first_step);

    /// Removes what runs before have left in a folder, which may not be there.
    static void remove_all(const std::filesystem::path& folder);

    void add_numbers(std::int64_t step, std::span<const std::pair<std::string, double>> numbers);
    /// `png` is a whole file.
    void add_picture(std::int64_t step, std::string_view tag, std::string_view png, int width, int height);

private:
    void write(std::int64_t step, std::string_view content);

    std::filesystem::path path_;
    std::ofstream file_;
};

} // namespace pulse_train

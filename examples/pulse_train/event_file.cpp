#include "event_file.hpp"

#include <array>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <system_error>
#include <vector>

#include <unistd.h>

#include <pulse/core/error.hpp>

namespace pulse_train {

namespace {

/// CRC-32C (Castagnoli), as the framing masks it.
std::uint32_t masked_crc(std::string_view bytes) {
    static constexpr auto table = [] {
        std::array<std::uint32_t, 256> made{};
        for (std::uint32_t i = 0; i != 256; ++i) {
            std::uint32_t c = i;
            for (int bit = 0; bit != 8; ++bit) { c = (c & 1) != 0 ? (c >> 1) ^ 0x82f63b78U : c >> 1; }
            made[i] = c;
        }
        return made;
    }();
    std::uint32_t crc = 0xffffffffU;
    for (const char byte : bytes) { crc = table[(crc ^ static_cast<unsigned char>(byte)) & 0xff] ^ (crc >> 8); }
    return std::rotr(crc ^ 0xffffffffU, 15) + 0xa282ead8U;
}

template <class T>
std::string raw(T value) {
    static_assert(std::endian::native == std::endian::little);
    std::string bytes(sizeof value, '\0');
    std::memcpy(bytes.data(), &value, sizeof value);
    return bytes;
}

// Fields of a protocol buffer.
std::string varint(std::uint64_t value) {
    std::string bytes;
    for (; value >= 128; value >>= 7) { bytes += static_cast<char>(value | 128); }
    return bytes + static_cast<char>(value);
}
std::string whole_field(unsigned field, std::uint64_t value) { return varint(field << 3) + varint(value); }
std::string bytes_field(unsigned field, std::string_view bytes) {
    return varint(field << 3 | 2) + varint(bytes.size()) + std::string{bytes};
}

constexpr std::string_view name_begins = "events.out.tfevents.";
constexpr std::string_view of_pulse = ".pulse.";

} // namespace

void event_file::remove_all(const std::filesystem::path& folder) {
    std::error_code failed;
    std::vector<std::filesystem::path> old;
    for (std::filesystem::directory_iterator at{folder, failed}, end; !failed && at != end; at.increment(failed)) {
        const std::string name = at->path().filename();
        if (name.starts_with(name_begins) && name.find(of_pulse) != std::string::npos) { old.push_back(at->path()); }
    }
    for (const auto& path : old) { std::filesystem::remove(path, failed); }
}

event_file::event_file(const std::filesystem::path& folder, std::int64_t first_step) {
    std::error_code failed;
    std::filesystem::create_directories(folder, failed);
    if (failed) { throw pulse::input_error{folder.string() + ": " + failed.message()}; }
    const auto now =
        std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch());
    path_ = folder / (std::string{name_begins} + std::to_string(now.count() / 1'000'000) + std::string{of_pulse} +
                      std::to_string(::getpid()) + "." + std::to_string(now.count() % 1'000'000));
    file_.open(path_, std::ios::binary);
    write(0, bytes_field(3, "brain.Event:2"));
    constexpr std::uint64_t start = 1;
    write(first_step, bytes_field(7, whole_field(1, start)));
}

void event_file::add_numbers(std::int64_t step, std::span<const std::pair<std::string, double>> numbers) {
    std::string summary;
    for (const auto& [tag, value] : numbers) {
        constexpr char four_bytes = 2 << 3 | 5;
        summary += bytes_field(1, bytes_field(1, tag) + four_bytes + raw(static_cast<float>(value)));
    }
    write(step, bytes_field(5, summary));
}

void event_file::add_picture(std::int64_t step, std::string_view tag, std::string_view png, int width, int height) {
    const std::string picture = whole_field(1, static_cast<std::uint64_t>(height)) +
                                whole_field(2, static_cast<std::uint64_t>(width)) + bytes_field(4, png);
    write(step, bytes_field(5, bytes_field(1, bytes_field(1, tag) + bytes_field(4, picture))));
}

void event_file::write(std::int64_t step, std::string_view content) {
    constexpr char eight_bytes = 1 << 3 | 1;
    const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    const std::string event =
        eight_bytes + raw(now) + whole_field(2, static_cast<std::uint64_t>(step)) + std::string{content};
    const std::string length = raw(static_cast<std::uint64_t>(event.size()));
    file_ << length << raw(masked_crc(length)) << event << raw(masked_crc(event)) << std::flush;
    if (!file_) { throw pulse::input_error{path_.string() + " cannot be written"}; }
}

} // namespace pulse_train

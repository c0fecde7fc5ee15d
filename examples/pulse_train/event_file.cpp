#include "event_file.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <optional>
#include <system_error>
#include <vector>

#include <unistd.h>

#include <pulse/core/error.hpp>
#include <pulse/data/png.hpp>
#include <pulse/io/atomic_file.hpp>

namespace pulse_train {

namespace {

constexpr std::string_view name_begins = "events.out.tfevents.";
constexpr std::string_view of_pulse = ".pulse.";
// A record: the length of its event, that length's checksum, the event, its checksum.
constexpr std::size_t record_head = 12;
constexpr std::size_t record_frame = record_head + 4;
// An event begins with two fields, its time (8 bytes) and its step.
constexpr char time_field = 1 << 3 | 1;
constexpr char step_field = 2 << 3;
constexpr char summary_field = 5 << 3 | 2;
constexpr std::size_t step_at = 10;

/// CRC-32C (Castagnoli), masked as the framing requires.
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

// Protocol buffer fields.
std::string varint(std::uint64_t value) {
    std::string bytes;
    for (; value >= 128; value >>= 7) { bytes += static_cast<char>(value | 128); }
    return bytes + static_cast<char>(value);
}
std::string whole_field(unsigned field, std::uint64_t value) { return varint(field << 3) + varint(value); }
std::string bytes_field(unsigned field, std::string_view bytes) {
    return varint(field << 3 | 2) + varint(bytes.size()) + std::string{bytes};
}

/// The step of numbers or a picture written by this file; nothing for other events.
std::optional<std::uint64_t> step_of_event(std::string_view event) {
    if (event.size() <= step_at || event[0] != time_field || event[step_at - 1] != step_field) { return {}; }
    std::uint64_t step = 0;
    for (std::size_t i = step_at, shift = 0; i != event.size() && shift < 64; ++i, shift += 7) {
        step |= static_cast<std::uint64_t>(event[i] & 127) << shift;
        if ((event[i] & 128) != 0) { continue; }
        const bool has_summary = i + 1 != event.size() && event[i + 1] == summary_field;
        return has_summary ? std::optional{step} : std::nullopt;
    }
    return {};
}

/// The event files of earlier runs, ordered by start time.
std::vector<std::filesystem::path> files_before(const std::filesystem::path& folder) {
    std::error_code failed;
    std::vector<std::filesystem::path> found;
    for (std::filesystem::directory_iterator at{folder, failed}, end; !failed && at != end; at.increment(failed)) {
        const std::string name = at->path().filename();
        if (name.starts_with(name_begins) && name.find(of_pulse) != std::string::npos) { found.push_back(at->path()); }
    }
    if (failed) { throw pulse::input_error{folder.string() + ": " + failed.message()}; }
    std::sort(found.begin(), found.end());
    return found;
}

/// A file's events of steps before `first_step`, up to an incomplete record.
std::vector<std::string> events_before(const std::filesystem::path& path, std::int64_t first_step) {
    const std::string bytes = pulse::io::read_file(path);
    std::vector<std::string> kept;
    for (std::size_t at = 0; bytes.size() - at >= record_frame;) {
        std::uint64_t length = 0;
        std::memcpy(&length, bytes.data() + at, sizeof length);
        if (length > bytes.size() - at - record_frame) { break; }
        const std::string_view event = std::string_view{bytes}.substr(at + record_head, length);
        const auto step = step_of_event(event);
        if (step && *step < static_cast<std::uint64_t>(first_step)) { kept.emplace_back(event); }
        at += record_frame + length;
    }
    return kept;
}

} // namespace

event_file::event_file(const std::filesystem::path& folder, std::int64_t first_step) {
    const auto before = files_before(folder);
    const long long now =
        std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch())
            .count();
    char name[96];
    std::snprintf(name, sizeof name, "%s%lld.%06lld%s%d", std::string{name_begins}.c_str(), now / 1'000'000,
                  now % 1'000'000, std::string{of_pulse}.c_str(), static_cast<int>(::getpid()));
    path_ = folder / name;
    file_.open(path_, std::ios::binary);
    write(0, bytes_field(3, "brain.Event:2"));
    for (const auto& path : before) {
        for (const std::string& event : events_before(path, first_step)) { write_record(event); }
    }
    std::error_code stays;
    for (const auto& path : before) { std::filesystem::remove(path, stays); }
}

void event_file::add_numbers(std::int64_t step, std::span<const std::pair<std::string, double>> numbers) {
    std::string summary;
    for (const auto& [tag, value] : numbers) {
        constexpr char four_bytes = 2 << 3 | 5;
        summary += bytes_field(1, bytes_field(1, tag) + four_bytes + raw(static_cast<float>(value)));
    }
    write(step, bytes_field(5, summary));
}

void event_file::add_picture(std::int64_t step, std::string_view tag, std::string_view png) {
    const auto size = pulse::data::png_size({reinterpret_cast<const std::uint8_t*>(png.data()), png.size()});
    const std::string picture = whole_field(1, size.height) + whole_field(2, size.width) + bytes_field(4, png);
    write(step, bytes_field(5, bytes_field(1, bytes_field(1, tag) + bytes_field(4, picture))));
}

void event_file::write(std::int64_t step, std::string_view content) {
    const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    write_record(time_field + raw(now) + step_field + varint(static_cast<std::uint64_t>(step)) + std::string{content});
}

void event_file::write_record(std::string_view event) {
    const std::string length = raw(static_cast<std::uint64_t>(event.size()));
    file_ << length << raw(masked_crc(length)) << event << raw(masked_crc(event)) << std::flush;
    if (!file_) { throw pulse::input_error{path_.string() + " cannot be written"}; }
}

} // namespace pulse_train

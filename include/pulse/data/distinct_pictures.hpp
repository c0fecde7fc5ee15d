#pragma once

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

#include <sys/stat.h>

#include <pulse/core/error.hpp>
#include <pulse/core/fingerprint.hpp>
#include <pulse/data/captioned_pictures.hpp>
#include <pulse/data/picture_index.hpp>
#include <pulse/data/prefetcher.hpp>
#include <pulse/io/atomic_file.hpp>

namespace pulse::data {

/// The distinct files of pictures: files with equal bytes count once, whatever their names.
///
/// Notes in a folder save reading: a file whose path, size, modification time and status-change time are as noted is
/// not read again. A file that was modified within the last seconds is not noted, since it may change again within the
/// resolution of its times.
class distinct_pictures {
public:
    /// Reads the pictures that the notes in `folder`, which need not exist, do not cover. Throws input_error naming a
    /// picture that cannot be read, unless bad ones are skipped.
    distinct_pictures(const captioned_pictures& from, const std::filesystem::path& folder) :
        place_of_(from.size()), file_{folder / notes_name(from.index().folder)} {
        const std::unordered_map<wide_fingerprint, wide_fingerprint> known = read_notes();
        const auto settled = std::chrono::system_clock::now() - std::chrono::seconds{3};
        const auto look = [&](std::uint64_t n) -> seen {
            if (n >= from.size()) { return {}; }
            const auto i = static_cast<std::uint32_t>(n);
            try {
                const auto [file, changed] = state_of(from.index(), i);
                const auto found = known.find(file);
                return {.file = file,
                        .bytes = found == known.end() ? bytes_of(from, i) : found->second,
                        .noted = found != known.end() || changed < settled};
            } catch (const input_error& fault) {
                if (from.options().on_bad_picture == bad_picture::stop) { throw; }
                return {.refused = fault.what()};
            }
        };
        prefetcher<seen> ahead{look, {.threads = 4, .ahead = 16}}; // the threads mostly wait for the disk
        std::unordered_map<wide_fingerprint, std::uint32_t> places;
        for (std::uint32_t i = 0; i != from.size(); ++i) {
            seen found = ahead.next();
            if (!found.refused.empty()) {
                refused_.emplace(i, std::move(found.refused));
                continue;
            }
            place_of_[i] = places.emplace(found.bytes, static_cast<std::uint32_t>(bytes_.size())).first->second;
            if (place_of_[i] == bytes_.size()) {
                bytes_.push_back(found.bytes);
                first_.push_back(i);
            }
            if (found.noted) { notes_.push_back({found.file, found.bytes}); }
        }
    }

    /// Fingerprints of the distinct files' bytes.
    [[nodiscard]] const std::vector<wide_fingerprint>& bytes() const noexcept { return bytes_; }
    /// For each picture that can be read: its index in bytes().
    [[nodiscard]] const std::vector<std::uint32_t>& place_of() const noexcept { return place_of_; }
    /// The first picture whose bytes are at an index of bytes().
    [[nodiscard]] std::uint32_t first(std::uint32_t place) const { return first_.at(place); }
    /// Why a picture cannot be read.
    [[nodiscard]] const std::map<std::uint32_t, std::string>& refused() const noexcept { return refused_; }

    /// Fingerprint of the bytes that picture `i` has on disk. Throws input_error naming the file.
    [[nodiscard]] static wide_fingerprint bytes_of(const captioned_pictures& from, std::uint32_t i) {
        return wide_fingerprint{}.add(from.index().stored_bytes(i, from.options().limits.most_file_bytes));
    }

    /// Writes the notes for the next run over these pictures. They only save time: a failure to write them is ignored.
    void keep_notes() const {
        std::string text{heading};
        text.append(reinterpret_cast<const char*>(notes_.data()), notes_.size() * sizeof(note));
        text += wide_fingerprint{}.add(text).text();
        std::error_code unused;
        std::filesystem::create_directories(file_.parent_path(), unused);
        try {
            io::write_file(file_, text);
        } catch (const input_error&) {}
    }

private:
    struct note {
        wide_fingerprint file{}; ///< place, size and times
        wide_fingerprint bytes{};
    };
    struct seen {
        wide_fingerprint file{};
        wide_fingerprint bytes{};
        bool noted{};
        std::string refused{};
    };

    static constexpr std::string_view heading = "pulse-pictures/2";
    static constexpr std::size_t sum_digits = 32;

    /// One notes file for each folder of pictures.
    [[nodiscard]] static std::string notes_name(const std::filesystem::path& folder) {
        std::error_code unused;
        return fingerprint{}.add(std::filesystem::weakly_canonical(folder, unused).string()).text() + ".notes";
    }
    /// Fingerprint that tells whether a file is still the one that was read, and when it was modified.
    [[nodiscard]] static std::pair<wide_fingerprint, std::chrono::system_clock::time_point> state_of(
        const picture_index& index, std::uint32_t i) {
        const picture_entry& entry = index.entries[i];
        const bool in_shard = index.layout == picture_layout::shards;
        const std::filesystem::path path = index.folder / (in_shard ? index.shards[entry.shard] : entry.name);
        struct ::stat file {};
        if (::stat(path.c_str(), &file) != 0) {
            throw input_error(index.name(i) + " cannot be opened: " + std::strerror(errno));
        }
        wide_fingerprint state;
        state.add(path.lexically_relative(index.folder).string()).add(file.st_size);
        // Programs that preserve a file's modification time, such as rsync, still alter its status-change time.
        for (const ::timespec& time : {file.st_mtim, file.st_ctim}) { state.add(time.tv_sec).add(time.tv_nsec); }
        state.add(entry.picture.offset).add(entry.picture.bytes);
        return {state, std::chrono::system_clock::from_time_t(file.st_mtim.tv_sec + 1)};
    }
    /// Empty where the file is missing or damaged: all pictures are then read.
    [[nodiscard]] std::unordered_map<wide_fingerprint, wide_fingerprint> read_notes() const {
        std::unordered_map<wide_fingerprint, wide_fingerprint> all;
        std::string text;
        try {
            text = io::read_file(file_);
        } catch (const input_error&) { return all; }
        const std::size_t frame = heading.size() + sum_digits;
        if (text.size() < frame || !text.starts_with(heading) || (text.size() - frame) % sizeof(note) != 0) {
            return all;
        }
        const std::string sum = text.substr(text.size() - sum_digits);
        text.resize(text.size() - sum_digits);
        if (wide_fingerprint{}.add(text).text() != sum) { return all; }
        std::vector<note> notes((text.size() - heading.size()) / sizeof(note));
        if (!notes.empty()) { std::memcpy(notes.data(), text.data() + heading.size(), notes.size() * sizeof(note)); }
        for (const note& one : notes) { all.emplace(one.file, one.bytes); }
        return all;
    }

    std::vector<wide_fingerprint> bytes_{};
    std::vector<std::uint32_t> first_{};
    std::vector<std::uint32_t> place_of_;
    std::map<std::uint32_t, std::string> refused_{};
    std::filesystem::path file_;
    std::vector<note> notes_{};
};

} // namespace pulse::data

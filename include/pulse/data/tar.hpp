#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/data/text.hpp>

namespace pulse::data {

/// A file inside a tar archive, and the range of its bytes.
struct tar_member {
    std::string name{};
    std::uint64_t offset{};
    std::uint64_t bytes{};

    [[nodiscard]] bool operator==(const tar_member&) const = default;
};

namespace detail {

/// What a pax header says of the members that follow it.
struct pax_facts {
    std::optional<std::string> path{};
    std::optional<std::uint64_t> bytes{};
};

/// Walks the headers of a tar archive. `File` has name() in quotes, size() and read(offset, bytes).
template <class File>
class tar_walk {
public:
    explicit tar_walk(const File& file) : file_{file} {}

    [[nodiscard]] std::vector<tar_member> members() {
        std::vector<tar_member> found;
        while (at_ < file_.size()) {
            if (file_.size() - at_ < header_.size()) { fail("ends within a header"); }
            file_.read(at_, std::as_writable_bytes(std::span{header_}));
            if (std::all_of(header_.begin(), header_.end(), [](char c) { return c == '\0'; })) { break; }
            require_checksum();
            take(found);
        }
        return found;
    }

private:
    static constexpr std::uint64_t block = 512;
    /// Maximum bytes of a long name or a pax header.
    static constexpr std::uint64_t longest_text = std::uint64_t{1} << 20U;

    [[noreturn]] void fail(const std::string& why) const {
        throw input_error(file_.name() + ": the tar archive " + why + " at byte " + std::to_string(at_));
    }
    [[nodiscard]] std::string_view field(std::size_t first, std::size_t count) const {
        return std::string_view{header_.data(), header_.size()}.substr(first, count);
    }
    /// A field up to its first zero.
    [[nodiscard]] std::string_view word(std::size_t first, std::size_t count) const {
        const std::string_view all = field(first, count);
        return all.substr(0, all.find('\0'));
    }

    /// Octal digits between blanks, or big-endian binary where the first bit is set (GNU).
    [[nodiscard]] std::uint64_t number(std::size_t first, std::size_t count, const char* what) const {
        if (static_cast<unsigned char>(header_[first]) == 0x80U) {
            std::uint64_t value = 0;
            for (const char c : field(first + 1, count - 1)) {
                if (value >> 55U != 0) { fail(std::string{"has an absurd "} + what); }
                value = value << 8U | static_cast<unsigned char>(c);
            }
            return value;
        }
        std::string_view digits = word(first, count);
        digits.remove_prefix(std::min(digits.find_first_not_of(' '), digits.size()));
        digits = digits.substr(0, digits.find_last_not_of(' ') + 1);
        std::uint64_t value = 0;
        for (const char c : digits) {
            if (c < '0' || c > '7') { fail(std::string{"has a header whose "} + what + " is not a number"); }
            value = value << 3U | static_cast<std::uint64_t>(c - '0');
        }
        return value;
    }

    /// Checks the sum of the header's bytes, its own field taken as blanks; old programs summed signed characters.
    void require_checksum() const {
        constexpr std::size_t first = 148;
        constexpr std::size_t count = 8;
        std::int64_t plain = 0;
        std::int64_t with_sign = 0;
        for (std::size_t i = 0; i != header_.size(); ++i) {
            const char c = i >= first && i < first + count ? ' ' : header_[i];
            plain += static_cast<unsigned char>(c);
            with_sign += static_cast<signed char>(c);
        }
        const auto written = static_cast<std::int64_t>(number(first, count, "checksum"));
        if (written != plain && written != with_sign) { fail("has a header with a wrong checksum"); }
    }

    [[nodiscard]] std::string text_behind_header(std::uint64_t bytes, const char* what) const {
        if (bytes > longest_text) {
            fail(std::string{"has "} + what + " of " + std::to_string(bytes) + " bytes, which is too long,");
        }
        std::string text(static_cast<std::size_t>(bytes), '\0');
        file_.read(at_ + block, std::as_writable_bytes(std::span{text}));
        return text;
    }

    /// Records "length key=value\n" (POSIX pax). Keys other than path and size do not tell where bytes are.
    void read_pax(std::string_view text, pax_facts& facts) const {
        while (!text.empty()) {
            std::size_t length = 0;
            const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), length);
            const auto digits = static_cast<std::size_t>(end - text.data());
            if (status != std::errc{} || length < digits + 2 || length > text.size() || text[digits] != ' ' ||
                text[length - 1] != '\n') {
                fail("has a pax header that is not a list of records");
            }
            const std::string_view record = text.substr(digits + 1, length - digits - 2);
            text.remove_prefix(length);
            const std::size_t equals = record.find('=');
            if (equals == std::string_view::npos) { fail("has a pax record without a value"); }
            const std::string_view key = record.substr(0, equals);
            const std::string_view value = record.substr(equals + 1);
            if (key.substr(0, 11) == "GNU.sparse.") { fail("holds a sparse file, which is not supported,"); }
            if (key == "path") { facts.path = value; }
            if (key == "size") {
                std::uint64_t bytes = 0;
                const auto read = std::from_chars(value.data(), value.data() + value.size(), bytes);
                if (read.ec != std::errc{} || read.ptr != value.data() + value.size()) {
                    fail("has a pax header whose size is not a number");
                }
                facts.bytes = bytes;
            }
        }
    }

    /// The name in the header itself. Only POSIX headers have a prefix; GNU keeps other data there.
    [[nodiscard]] std::string short_name() const {
        std::string name{word(0, 100)};
        if (field(257, 6) == std::string_view{"ustar\0", 6} && header_[345] != '\0') {
            name = std::string{word(345, 155)} + '/' + name;
        }
        return name;
    }

    void take(std::vector<tar_member>& found) {
        const char type = header_[156];
        const bool describes_next = type == 'x' || type == 'g' || type == 'L' || type == 'K';
        std::uint64_t bytes = number(124, 12, "size");
        if (!describes_next) { bytes = next_.bytes.value_or(all_.bytes.value_or(bytes)); }
        if (type >= '1' && type <= '6') { bytes = 0; } // links, devices and folders have none, whatever is written
        if (bytes > file_.size() - at_ - block) { fail("ends within the member that begins"); }

        if (type == 'x') {
            read_pax(text_behind_header(bytes, "a pax header"), next_);
        } else if (type == 'g') {
            read_pax(text_behind_header(bytes, "a pax header"), all_);
        } else if (type == 'L') {
            const std::string name = text_behind_header(bytes, "a name");
            next_.path = name.substr(0, name.find('\0'));
        } else if (type == 'S') {
            fail("holds a sparse file, which is not supported,");
        } else if (type != 'K') {
            tar_member member{next_.path.value_or(all_.path.value_or(short_name())), at_ + block, bytes};
            next_ = {};
            if (type == '1' || type == '2') { fail("holds the link '" + one_line(member.name) + "', not a file,"); }
            // In the oldest format, a folder is a file whose name ends with a slash.
            const bool folder = !member.name.empty() && member.name.back() == '/';
            if (!(type >= '3' && type <= '6') && !folder) {
                if (member.name.empty()) { fail("has a member without a name"); }
                found.push_back(std::move(member));
            }
        }
        at_ += block + bytes;
        at_ += (block - bytes % block) % block;
    }

    const File& file_;
    std::uint64_t at_{};
    std::array<char, block> header_{};
    pax_facts next_{}; ///< of the next member
    pax_facts all_{};  ///< of all members from here on
};

} // namespace detail

/// The files in a tar archive (v7, ustar, pax, GNU), in its order. Folders and devices are skipped; only headers are
/// read. Throws input_error naming the archive and the byte, also for links and sparse files.
template <class File>
[[nodiscard]] std::vector<tar_member> read_tar(const File& file) {
    return detail::tar_walk<File>{file}.members();
}

} // namespace pulse::data

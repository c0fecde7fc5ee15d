#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include <pulse/core/error.hpp>
#include <pulse/data/tar.hpp>

#include "reader.hpp"

namespace {

struct archive {
    std::string bytes;
    [[nodiscard]] std::string name() const { return "input.json"; }
    [[nodiscard]] std::uint64_t size() const { return bytes.size(); }
    void read(std::uint64_t offset, std::span<std::byte> out) const {
        if (offset > bytes.size() || out.size() > bytes.size() - offset) {
            pulse_fuzz::report("read beyond the end", std::to_string(offset));
        }
        if (!out.empty()) { std::memcpy(out.data(), bytes.data() + offset, out.size()); }
    }
};

/// The archive with a valid checksum in each block: otherwise these would catch all damage before the reader's other
/// checks.
std::string with_checksums(std::string bytes) {
    for (std::size_t at = 0; at + 512 <= bytes.size(); at += 512) {
        if (bytes.compare(at + 257, 5, "ustar") != 0) { continue; }
        bytes.replace(at + 148, 8, 8, ' ');
        unsigned sum = 0;
        for (std::size_t i = 0; i != 512; ++i) { sum += static_cast<unsigned char>(bytes[at + i]); }
        for (std::size_t i = 6; i != 0; --i, sum /= 8) { bytes[at + 147 + i] = static_cast<char>('0' + sum % 8); }
        bytes[at + 154] = '\0';
    }
    return bytes;
}

/// Members lie inside the archive, in order, and have names; an error names the archive and the byte.
void check(const archive& input) {
    try {
        std::uint64_t end = 0;
        for (const auto& member : pulse::data::read_tar(input)) {
            if (member.name.empty() || member.offset < end + 512 || member.bytes > input.size() - member.offset) {
                pulse_fuzz::report("a member that is not in the archive", member.name);
            }
            end = member.offset + member.bytes;
        }
    } catch (const pulse::input_error& e) {
        constexpr std::array<std::string_view, 1> fields{" at byte "};
        if (!pulse_fuzz::names_the_culprit(e.what(), fields)) { pulse_fuzz::report("unclear refusal", e.what()); }
    }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string bytes(reinterpret_cast<const char*>(data), size);
    check({bytes});
    check({with_checksums(bytes)});
    return 0;
}

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <pulse/core/error.hpp>

namespace pulse::data::detail {

/// Reads little-endian numbers from the beginning of a file on. Throws input_error past its end.
class little_endian_reader {
public:
    explicit little_endian_reader(std::span<const std::uint8_t> file) noexcept : file_{file} {}

    /// Bytes read so far.
    [[nodiscard]] std::size_t place() const noexcept { return at_; }
    void go_to(std::size_t place) {
        if (place > file_.size()) { throw input_error("the file ends too early"); }
        at_ = place;
    }
    [[nodiscard]] std::span<const std::uint8_t> bytes(std::size_t count) {
        if (count > file_.size() - at_) { throw input_error("the file ends too early"); }
        at_ += count;
        return file_.subspan(at_ - count, count);
    }
    void skip(std::size_t count) { static_cast<void>(bytes(count)); }
    [[nodiscard]] std::uint8_t u8() { return bytes(1)[0]; }
    [[nodiscard]] std::uint32_t u16() { return number(2); }
    [[nodiscard]] std::uint32_t u32() { return number(4); }

private:
    [[nodiscard]] std::uint32_t number(std::size_t count) {
        std::uint32_t value = 0;
        const std::span<const std::uint8_t> from = bytes(count);
        for (std::size_t i = count; i != 0; --i) { value = value << 8U | from[i - 1]; }
        return value;
    }

    std::span<const std::uint8_t> file_;
    std::size_t at_{};
};

} // namespace pulse::data::detail

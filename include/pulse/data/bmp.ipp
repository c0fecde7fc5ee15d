#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/data/bmp.hpp>
#include <pulse/data/little_endian.hpp>
#include <pulse/data/stored_picture.hpp>

namespace pulse::data {

namespace detail {

/// Reader of a BMP; the constructor reads everything before the pixels.
class bmp_reader {
public:
    explicit bmp_reader(std::span<const std::uint8_t> file) : in_{file} {
        in_.skip(10);
        std::size_t pixels_at = in_.u32();
        const std::size_t header = in_.u32();
        constexpr std::array known{12U, 40U, 52U, 56U, 64U, 108U, 124U};
        if (std::find(known.begin(), known.end(), header) == known.end()) {
            throw input_error("BMP: a header of " + std::to_string(header) + " bytes is not supported");
        }
        const bool oldest = header == 12; // OS/2, like the header of 64 bytes
        size_.width = oldest ? in_.u16() : in_.u32();
        size_.height = oldest ? in_.u16() : in_.u32();
        from_top_ = size_.height > 0x7FFFFFFFU;
        if (from_top_) { size_.height = 0U - size_.height; }
        in_.skip(2);
        bits_ = in_.u16();
        std::uint32_t colours = 0;
        if (!oldest) {
            packing_ = in_.u32();
            in_.skip(12);
            colours = in_.u32();
            in_.skip(4);
        }
        require_known(header);
        if (packing_ == masks_given) {
            // The masks follow a header of 40 bytes and are part of a longer one: at the same offset.
            for (std::size_t k = 0; k != (header >= 56 ? 4 : 3); ++k) { masks_[k] = in_.u32(); }
            if (bits_ == 32 && masks_ == std::array<std::uint32_t, 4>{}) {
                masks_ = {0xFF0000, 0xFF00, 0xFF, 0xFF000000};
            }
        } else if (bits_ > 8) {
            masks_ = bits_ == 16 ? std::array{0x7C00U, 0x3E0U, 0x1FU, 0U} : std::array{0xFF0000U, 0xFF00U, 0xFFU, 0U};
        }
        if (bits_ != 32) { masks_[3] = 0; }
        require_masks();
        in_.go_to(std::max(in_.place(), 14 + header));
        if (bits_ <= 8) {
            const std::size_t table = in_.place();
            const std::size_t stored = colours != 0 ? colours : std::size_t{1} << bits_;
            read_table(stored, oldest ? 3 : 4);
            if (pixels_at == table) { pixels_at = in_.place(); }
        }
        if (pixels_at != 0) { in_.go_to(pixels_at); }
    }

    [[nodiscard]] picture_size size() const noexcept { return size_; }

    void read(stored_picture& out, bool keeps_alpha) {
        if (keeps_alpha && masks_[3] != 0) { out.alpha.resize(out.colours.pixels.size() / 3); }
        if (packing_ == runs_of_8 || packing_ == runs_of_4) { return read_runs(out); }
        const std::size_t needed = (std::size_t{size_.width} * bits_ + 7) / 8;
        const std::size_t stride = (needed + 3) / 4 * 4;
        for (std::size_t y = 0; y != size_.height; ++y) {
            // The last row need not be padded.
            const std::span<const std::uint8_t> row = in_.bytes(needed);
            if (y + 1 != size_.height) { in_.skip(stride - needed); }
            for (std::size_t x = 0; x != size_.width; ++x) { put(out, x, y, sample(row, x)); }
        }
    }

private:
    static constexpr std::uint32_t runs_of_8 = 1;
    static constexpr std::uint32_t runs_of_4 = 2;
    static constexpr std::uint32_t masks_given = 3;

    void require_known(std::size_t header) const {
        constexpr std::array depths{1U, 4U, 8U, 16U, 24U, 32U};
        const bool fits = packing_ == 0 || (packing_ == runs_of_8 && bits_ == 8) ||
                          (packing_ == runs_of_4 && bits_ == 4) ||
                          (packing_ == masks_given && bits_ >= 16 && header != 64);
        if (std::find(depths.begin(), depths.end(), bits_) == depths.end() || !fits) {
            throw input_error("BMP: " + std::to_string(bits_) + " bits of compression " + std::to_string(packing_) +
                              " are not supported");
        }
    }
    /// The bits of each mask must be contiguous.
    void require_masks() const {
        for (std::size_t k = 0; bits_ > 8 && k != 4; ++k) {
            const std::uint64_t low = masks_[k] == 0 ? 0U : masks_[k] >> std::countr_zero(masks_[k]);
            if ((low & (low + 1)) != 0 || (low == 0 && k != 3)) {
                throw input_error("BMP: its colour masks are not supported");
            }
        }
    }
    /// Blue, green, red and, in entries of 4 bytes, a pad byte. Colours that the table lacks are black.
    void read_table(std::size_t stored, std::size_t bytes) {
        constexpr std::size_t most = 65536;
        if (stored > most) { throw input_error("BMP: a table of " + std::to_string(stored) + " colours is too long"); }
        const std::span<const std::uint8_t> table = in_.bytes(stored * bytes);
        for (std::size_t i = 0; i != std::min(stored, colours_.size()); ++i) {
            for (std::size_t k = 0; k != 3; ++k) { colours_[i][k] = table[bytes * i + 2 - k]; }
        }
    }
    [[nodiscard]] std::uint32_t sample(std::span<const std::uint8_t> row, std::size_t x) const {
        if (bits_ < 8) {
            const std::size_t place = x * bits_;
            return row[place / 8] >> (8 - bits_ - place % 8) & ((1U << bits_) - 1U);
        }
        std::uint32_t value = 0;
        for (std::size_t i = bits_ / 8; i != 0; --i) { value = value << 8U | row[x * bits_ / 8 + i - 1]; }
        return value;
    }
    /// `y` counts rows as stored: the lowest first, unless the header says otherwise.
    void put(stored_picture& out, std::size_t x, std::size_t y, std::uint32_t sample) const {
        const std::size_t row = from_top_ ? y : size_.height - 1 - y;
        const std::size_t pixel = row * size_.width + x;
        std::uint8_t* const to = out.colours.pixels.data() + 3 * pixel;
        if (bits_ <= 8) {
            std::copy(colours_[sample].begin(), colours_[sample].end(), to);
            return;
        }
        const auto part = [&](std::size_t k) {
            const int shift = std::countr_zero(masks_[k]);
            return static_cast<unsigned>(std::uint64_t{(sample & masks_[k]) >> shift} * 255U / (masks_[k] >> shift));
        };
        const unsigned alpha = masks_[3] == 0 ? 255U : part(3);
        for (std::size_t k = 0; k != 3; ++k) { to[k] = on_white(part(k), alpha); }
        if (!out.alpha.empty()) { out.alpha[pixel] = static_cast<std::uint8_t>(alpha); }
    }
    /// Runs of one sample (at 4 bits, of two that alternate), literal samples, and moves; skipped pixels keep colour 0.
    void read_runs(stored_picture& out) {
        std::vector<std::uint8_t>& pixels = out.colours.pixels;
        for (std::size_t i = 0; i != pixels.size(); ++i) { pixels[i] = colours_[0][i % 3]; }
        std::size_t x = 0;
        std::size_t y = 0;
        const auto take = [&](std::uint8_t pair, std::size_t i) {
            return bits_ == 8 ? pair : i % 2 == 0 ? pair >> 4U : pair & 15U;
        };
        while (y < size_.height && !(y + 1 == size_.height && x == size_.width)) {
            const std::size_t count = in_.u8();
            const std::uint8_t pair = in_.u8();
            if (count != 0) {
                // A run may be longer than what is left of its row.
                const std::size_t fits = std::min<std::size_t>(count, size_.width - x);
                for (std::size_t i = 0; i != fits; ++i) { put(out, x++, y, take(pair, i)); }
            } else if (pair == 0) {
                x = 0;
                ++y;
            } else if (pair == 1) {
                throw input_error("damaged BMP: its data end before its last pixel");
            } else if (pair == 2) {
                x += in_.u8();
                y += in_.u8();
                if (x > size_.width) { throw input_error("damaged BMP: its data exceed their row"); }
            } else {
                if (pair > size_.width - x) { throw input_error("damaged BMP: its data exceed their row"); }
                const std::size_t bytes = bits_ == 8 ? pair : (pair + 1U) / 2;
                const std::span<const std::uint8_t> as_they_are = in_.bytes(bytes);
                for (std::size_t i = 0; i != pair; ++i) {
                    put(out, x++, y, take(as_they_are[bits_ == 8 ? i : i / 2], i));
                }
                const bool last = y + 1 == size_.height && x == size_.width;
                if (!last) { in_.skip(bytes % 2); }
            }
        }
    }

    little_endian_reader in_;
    picture_size size_{};
    bool from_top_{};
    std::uint32_t bits_{};
    std::uint32_t packing_{};
    std::array<std::uint32_t, 4> masks_{}; ///< red, green, blue, alpha
    std::array<std::array<std::uint8_t, 3>, 256> colours_{};
};

} // namespace detail

PULSE_PICTURES_INLINE picture_size bmp_size(std::span<const std::uint8_t> bytes) {
    return detail::bmp_reader{bytes}.size();
}

PULSE_PICTURES_INLINE stored_picture decode_bmp(std::span<const std::uint8_t> bytes, const picture_limits& limits,
                                                bool keeps_alpha) {
    detail::bmp_reader reader{bytes};
    stored_picture result{detail::room_for(reader.size(), limits)};
    reader.read(result, keeps_alpha);
    return result;
}

} // namespace pulse::data

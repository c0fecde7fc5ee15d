#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/data/gif.hpp>
#include <pulse/data/little_endian.hpp>
#include <pulse/data/stored_picture.hpp>

namespace pulse::data {

namespace detail {

/// Reader of a GIF's first frame; the constructor reads everything before the frame's data.
class gif_reader {
public:
    explicit gif_reader(std::span<const std::uint8_t> file) : in_{file} {
        const std::span<const std::uint8_t> version = in_.bytes(6); // GIF87a or GIF89a
        if ((version[4] != '7' && version[4] != '9') || version[5] != 'a') {
            throw input_error("GIF: its version is not supported");
        }
        size_.width = in_.u16();
        size_.height = in_.u16();
        const unsigned flags = in_.u8();
        in_.skip(2);
        // Without a colour table, samples are grey.
        for (std::size_t i = 0; i != colours_.size(); ++i) { colours_[i].fill(static_cast<std::uint8_t>(i)); }
        read_table(flags);
        // Other programs, too, skip bytes that begin nothing.
        for (unsigned kind = in_.u8(); kind != ','; kind = in_.u8()) {
            if (kind == ';') { throw input_error("GIF: it has no picture"); }
            if (kind == '!') { read_extension(); }
        }
        left_ = in_.u16();
        top_ = in_.u16();
        width_ = in_.u16();
        height_ = in_.u16();
        if (width_ == 0 || height_ == 0) { throw input_error("damaged GIF: its first frame is empty"); }
        size_.width = std::max(size_.width, left_ + width_);
        size_.height = std::max(size_.height, top_ + height_);
        const unsigned of_frame = in_.u8();
        interlaced_ = (of_frame & 0x40U) != 0;
        read_table(of_frame);
        sample_bits_ = in_.u8();
        if (sample_bits_ < 2 || sample_bits_ > 8) {
            throw input_error("GIF: samples of " + std::to_string(sample_bits_) +
                              " bits are not supported, only 2 to 8");
        }
    }

    [[nodiscard]] picture_size size() const noexcept { return size_; }

    /// Pixels around the frame are transparent, or colour 0; transparent pixels become white.
    void read(stored_picture& out, bool keeps_alpha) {
        constexpr std::array<std::uint8_t, 3> white{255, 255, 255};
        if (transparent_) { colours_[*transparent_] = white; }
        const std::vector<std::uint8_t> frame = samples();
        const std::size_t pixels = out.colours.pixels.size() / 3;
        if (keeps_alpha && transparent_) { out.alpha.resize(pixels); }
        const auto put = [&](std::size_t pixel, std::uint8_t sample) {
            std::ranges::copy(colours_[sample], out.colours.pixels.begin() + static_cast<std::ptrdiff_t>(3 * pixel));
            if (!out.alpha.empty()) { out.alpha[pixel] = sample == *transparent_ ? 0 : 255; }
        };
        for (std::size_t i = 0; i != pixels; ++i) { put(i, transparent_.value_or(0)); }
        const std::uint8_t* sample = frame.data();
        const auto row = [&](std::size_t y) {
            for (std::size_t x = 0; x != width_; ++x) { put((top_ + y) * size_.width + left_ + x, *sample++); }
        };
        const auto pass = [&](std::size_t first, std::size_t step) {
            for (std::size_t y = first; y < height_; y += step) { row(y); }
        };
        if (!interlaced_) { return pass(0, 1); }
        pass(0, 8);
        pass(4, 8);
        pass(2, 4);
        pass(1, 2);
    }

private:
    /// Reads a colour table if the flags say that there is one.
    void read_table(unsigned flags) {
        if ((flags & 0x80U) == 0) { return; }
        // A frame's own table replaces the file's entirely; colours that it lacks are black.
        colours_ = {};
        const std::span<const std::uint8_t> table = in_.bytes(std::size_t{6} << (flags & 7U));
        for (std::size_t i = 0; i != table.size(); ++i) { colours_[i / 3][i % 3] = table[i]; }
    }
    /// Reads blocks up to an empty one. The first block of a graphic control extension names the transparent colour.
    void read_extension() {
        const bool control = in_.u8() == 0xF9;
        bool first = true;
        for (std::size_t bytes = in_.u8(); bytes != 0; bytes = in_.u8()) {
            const std::span<const std::uint8_t> block = in_.bytes(bytes);
            if (control && first && bytes >= 4 && (block[0] & 1U) != 0) { transparent_ = block[3]; }
            first = false;
        }
    }
    /// The next code of the frame's data, which are cut into blocks; least significant bits first.
    [[nodiscard]] unsigned code(unsigned bits) {
        while (held_ < bits) {
            if (block_.empty()) {
                block_ = in_.bytes(in_.u8());
                if (block_.empty()) { throw input_error("damaged GIF: its data end before its last pixel"); }
            }
            window_ |= std::uint32_t{block_.front()} << held_;
            held_ += 8;
            block_ = block_.subspan(1);
        }
        const unsigned value = window_ & ((1U << bits) - 1U);
        window_ >>= bits;
        held_ -= bits;
        return value;
    }
    /// Decodes the frame's samples, in the order of its data, by LZW: a code above the samples is the string of an
    /// earlier code and one sample.
    [[nodiscard]] std::vector<std::uint8_t> samples() {
        const std::size_t all = std::size_t{width_} * height_;
        std::vector<std::uint8_t> out(all);
        // A string is kept as the place in `out` where it was first written.
        struct written {
            std::size_t at;
            std::size_t length;
        };
        constexpr unsigned most = 4096;
        std::vector<written> strings(most);
        const unsigned clear = 1U << sample_bits_;
        unsigned next = clear + 2;
        unsigned bits = sample_bits_ + 1;
        written last{}; // empty: no code since the last clear
        for (std::size_t at = 0; at != all;) {
            const unsigned found = code(bits);
            if (found == clear) {
                next = clear + 2;
                bits = sample_bits_ + 1;
                last = {};
                continue;
            }
            if (found == clear + 1) { throw input_error("damaged GIF: its data end before its last pixel"); }
            if (found > next || (found > clear && last.length == 0)) {
                throw input_error("damaged GIF: its data are not valid codes");
            }
            // The first sample of this code completes the string that the last code began.
            if (last.length != 0 && next < most) {
                strings[next] = {last.at, last.length + 1};
                if (++next == 1U << bits && bits < 12) { ++bits; }
            }
            const written now{at, std::min(found < clear ? 1 : strings[found].length, all - at)};
            if (found < clear) {
                out[at] = static_cast<std::uint8_t>(found);
            } else {
                // Source and destination may overlap: a code may stand for the string that it completes.
                for (std::size_t i = 0; i != now.length; ++i) { out[at + i] = out[strings[found].at + i]; }
            }
            at += now.length;
            last = now;
        }
        return out;
    }

    little_endian_reader in_;
    picture_size size_{};
    std::uint32_t left_{};
    std::uint32_t top_{};
    std::uint32_t width_{};
    std::uint32_t height_{};
    bool interlaced_{};
    unsigned sample_bits_{};
    std::array<std::array<std::uint8_t, 3>, 256> colours_{};
    std::optional<std::uint8_t> transparent_{};
    std::span<const std::uint8_t> block_{};
    std::uint32_t window_{};
    unsigned held_{};
};

} // namespace detail

PULSE_PICTURES_INLINE picture_size gif_size(std::span<const std::uint8_t> bytes) {
    return detail::gif_reader{bytes}.size();
}

PULSE_PICTURES_INLINE stored_picture decode_gif(std::span<const std::uint8_t> bytes, const picture_limits& limits,
                                                bool keeps_alpha) {
    detail::gif_reader reader{bytes};
    stored_picture result{detail::room_for(reader.size(), limits)};
    reader.read(result, keeps_alpha);
    return result;
}

} // namespace pulse::data

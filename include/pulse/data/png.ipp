#pragma once

#include <algorithm>
#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <png.h>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/data/exif.hpp>
#include <pulse/data/png.hpp>
#include <pulse/data/stored_picture.hpp>

namespace pulse::data {

namespace detail {

/// The bytes of a profile that ImageMagick wrote as text: an empty line, one with the profile's name, one with its
/// length, then hexadecimal digits. Empty for any other text.
[[nodiscard]] inline std::vector<std::uint8_t> raw_profile(std::string_view text) {
    for (int line = 0; line != 3; ++line) {
        const std::size_t end = text.find('\n');
        if (end == std::string_view::npos) { return {}; }
        text.remove_prefix(end + 1);
    }
    std::vector<std::uint8_t> bytes;
    bool half = false;
    for (const char c : text) {
        if (c == ' ' || c == '\n' || c == '\r' || c == '\t') { continue; }
        constexpr std::string_view digits = "0123456789abcdefABCDEF";
        const std::size_t digit = digits.find(c);
        if (digit == std::string_view::npos) { return {}; }
        const auto value = static_cast<std::uint8_t>(digit < 16 ? digit : digit - 6);
        if (half) {
            bytes.back() = static_cast<std::uint8_t>(bytes.back() << 4U | value);
        } else {
            bytes.push_back(value);
        }
        half = !half;
    }
    return bytes;
}

/// One decompression by libpng. Its errors longjmp, so each step is a function of its own with nothing to destroy.
class png_reader {
public:
    explicit png_reader(std::span<const std::uint8_t> bytes) noexcept : rest_{bytes} {
        png_ = ::png_create_read_struct(
            PNG_LIBPNG_VER_STRING, this, [](::png_structp png, ::png_const_charp text) { self(png).leave(text); },
            [](::png_structp, ::png_const_charp) {});
        if (png_ != nullptr) { info_ = ::png_create_info_struct(png_); }
        started_ = info_ != nullptr && step([this] {
                       // Limits ancillary chunks to 64 of 1 MiB, however well they are compressed.
                       ::png_set_chunk_cache_max(png_, 64);
                       ::png_set_chunk_malloc_max(png_, std::size_t{1} << 20U);
                       ::png_set_user_limits(png_, 0x7FFFFFFF, 0x7FFFFFFF);
                       ::png_set_read_fn(png_, this, [](::png_structp png, ::png_bytep out, std::size_t count) {
                           auto& reader = *static_cast<png_reader*>(::png_get_io_ptr(png));
                           if (count > reader.rest_.size()) { reader.leave("the file ends too early"); }
                           std::memcpy(out, reader.rest_.data(), count);
                           reader.rest_ = reader.rest_.subspan(count);
                       });
                       ::png_read_info(png_, info_);
                   });
    }
    png_reader(const png_reader&) = delete;
    png_reader& operator=(const png_reader&) = delete;
    ~png_reader() { ::png_destroy_read_struct(&png_, &info_, nullptr); }

    void require_started() const {
        if (!started_) { fail(); }
    }
    [[nodiscard]] picture_size size() const noexcept {
        return {::png_get_image_width(png_, info_), ::png_get_image_height(png_, info_)};
    }
    /// From the chunks read so far: the orientation may also be stored after the picture.
    [[nodiscard]] int orientation() const {
        ::png_uint_32 count = 0;
        ::png_bytep data = nullptr;
        std::vector<std::uint8_t> exif;
        if (::png_get_eXIf_1(png_, info_, &count, &data) != 0) {
            exif.assign(data, data + count);
        } else {
            exif = raw_profile(text("Raw profile type exif"));
        }
        return orientation_of(exif, text("XML:com.adobe.xmp"));
    }

    /// `out`: width x height x 4, red, green, blue and alpha.
    void read(std::vector<std::uint8_t>& out) {
        const std::size_t row = std::size_t{size().width} * 4;
        std::vector<::png_bytep> lines(size().height);
        for (std::size_t y = 0; y != lines.size(); ++y) { lines[y] = out.data() + y * row; }
        ::png_bytepp const first = lines.data();
        const bool whole = step([this, first, row] {
            ::png_set_expand(png_);
            ::png_set_scale_16(png_);
            ::png_set_gray_to_rgb(png_);
            ::png_set_add_alpha(png_, 0xFF, PNG_FILLER_AFTER);
            ::png_set_interlace_handling(png_);
            ::png_read_update_info(png_, info_);
            if (::png_get_rowbytes(png_, info_) != row) { leave("its rows are not red, green, blue and alpha"); }
            ::png_read_image(png_, first);
            ::png_read_end(png_, info_);
        });
        if (!whole) { fail(); }
    }

private:
    /// The text under a keyword, compressed or not; of several, the last.
    [[nodiscard]] std::string_view text(std::string_view keyword) const {
        ::png_textp all = nullptr;
        std::string_view found;
        for (int left = ::png_get_text(png_, info_, &all, nullptr); left > 0; --left, ++all) {
            if (all->key != keyword || all->text == nullptr) { continue; }
            found = {all->text, all->compression > 0 ? all->itxt_length : all->text_length};
        }
        return found;
    }
    /// False when libpng jumped out of `body`.
    template <class Body>
    [[nodiscard]] bool step(const Body& body) noexcept {
        if (setjmp(back_) != 0) { return false; }
        body();
        return true;
    }
    [[nodiscard]] static png_reader& self(::png_structp png) noexcept {
        return *static_cast<png_reader*>(::png_get_error_ptr(png));
    }
    [[noreturn]] void leave(const char* text) noexcept {
        std::strncpy(text_, text, sizeof text_ - 1);
        // The text may hold names of unknown chunks, which come from the file.
        std::replace_if(
            std::begin(text_), std::end(text_), [](char c) { return c != '\0' && (c < 0x20 || c == 0x7f); }, '?');
        std::longjmp(back_, 1);
    }
    [[noreturn]] void fail() const { throw input_error(std::string{"damaged PNG: "} + text_); }

    std::span<const std::uint8_t> rest_;
    ::png_structp png_{};
    ::png_infop info_{};
    std::jmp_buf back_{};
    char text_[256]{};
    bool started_{};
};

} // namespace detail

PULSE_PICTURES_INLINE picture_size png_size(std::span<const std::uint8_t> bytes) {
    const detail::png_reader reader{bytes};
    reader.require_started();
    return reader.size();
}

PULSE_PICTURES_INLINE int png_orientation(std::span<const std::uint8_t> bytes) {
    const detail::png_reader reader{bytes};
    reader.require_started();
    return reader.orientation();
}

PULSE_PICTURES_INLINE stored_picture decode_png(std::span<const std::uint8_t> bytes, const picture_limits& limits,
                                                bool keeps_alpha) {
    detail::png_reader reader{bytes};
    reader.require_started();
    stored_picture result{detail::room_for(reader.size(), limits)};
    std::vector<std::uint8_t> with_alpha(result.colours.pixels.size() / 3 * 4);
    reader.read(with_alpha);
    detail::put_on_white(with_alpha, result, keeps_alpha);
    result.orientation = reader.orientation();
    return result;
}

} // namespace pulse::data

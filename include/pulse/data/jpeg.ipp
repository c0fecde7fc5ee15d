#pragma once

#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <jerror.h>
#include <jpeglib.h>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/data/exif.hpp>
#include <pulse/data/jpeg.hpp>
#include <pulse/data/stored_picture.hpp>

namespace pulse::data {

namespace detail {

/// One decompression by libjpeg. Its errors longjmp, so each step is a function of its own with nothing to destroy.
class jpeg_reader {
public:
    explicit jpeg_reader(std::span<const std::uint8_t> bytes) noexcept {
        info_.err = ::jpeg_std_error(&errors_);
        errors_.error_exit = [](::j_common_ptr any) { self(any).leave(any); };
        errors_.emit_message = [](::j_common_ptr any, int level) {
            if (level < 0) { self(any).hear(any); }
        };
        info_.client_data = this;
        progress_.progress_monitor = [](::j_common_ptr any) { self(any).limit_scans(); };
        started_ = step([this, bytes] {
            ::jpeg_create_decompress(&info_);
            info_.progress = &progress_;
            ::jpeg_mem_src(&info_, bytes.data(), static_cast<unsigned long>(bytes.size()));
            ::jpeg_save_markers(&info_, JPEG_APP0 + 1, 0xFFFF);
            ::jpeg_read_header(&info_, TRUE);
            const bool inks = info_.jpeg_color_space == JCS_CMYK || info_.jpeg_color_space == JCS_YCCK;
            info_.out_color_space = inks ? JCS_CMYK : JCS_RGB;
        });
    }
    jpeg_reader(const jpeg_reader&) = delete;
    jpeg_reader& operator=(const jpeg_reader&) = delete;
    ~jpeg_reader() { ::jpeg_destroy_decompress(&info_); }

    void require_started() const {
        if (!started_) { fail(); }
    }
    [[nodiscard]] picture_size size() const noexcept { return {info_.image_width, info_.image_height}; }
    /// Meaningful after read().
    [[nodiscard]] bool damaged() const noexcept { return damaged_; }

    [[nodiscard]] int orientation() const {
        std::string_view exif;
        std::string_view xmp;
        for (::jpeg_saved_marker_ptr marker = info_.marker_list; marker != nullptr; marker = marker->next) {
            const std::string_view data{reinterpret_cast<const char*>(marker->data), marker->data_length};
            constexpr std::string_view of_xmp{"http://ns.adobe.com/xap/1.0/\0", 29};
            if (exif.empty() && data.substr(0, 4) == "Exif") { exif = data; }
            if (data.substr(0, of_xmp.size()) == of_xmp) { xmp = data; }
        }
        return orientation_of({reinterpret_cast<const std::uint8_t*>(exif.data()), exif.size()}, xmp);
    }

    /// `out`: width x height x 3.
    void read(std::vector<std::uint8_t>& out) {
        const bool inks = info_.out_color_space == JCS_CMYK;
        std::vector<std::uint8_t> four_inks(inks ? std::size_t{info_.image_width} * 4 : 0);
        std::uint8_t* const all = out.data();
        std::uint8_t* const line = four_inks.data();
        const bool whole = step([this, all, line, inks] {
            ::jpeg_start_decompress(&info_);
            const std::size_t row = std::size_t{info_.image_width} * 3;
            while (info_.output_scanline < info_.output_height) {
                std::uint8_t* const to = all + info_.output_scanline * row;
                ::JSAMPROW into = inks ? line : to;
                ::jpeg_read_scanlines(&info_, &into, 1);
                // By Adobe's convention, which every program follows, inks are stored inverted.
                for (std::size_t i = 0; inks && i != row; ++i) {
                    const unsigned product = unsigned{line[i / 3 * 4 + i % 3]} * line[i / 3 * 4 + 3] + 128U;
                    to[i] = static_cast<std::uint8_t>(((product >> 8U) + product) >> 8U);
                }
            }
            ::jpeg_finish_decompress(&info_);
        });
        if (!whole) { fail(); }
    }

private:
    /// False when libjpeg jumped out of `body`.
    template <class Body>
    [[nodiscard]] bool step(const Body& body) noexcept {
        if (setjmp(back_) != 0) { return false; }
        body();
        return true;
    }
    [[nodiscard]] static jpeg_reader& self(::j_common_ptr any) noexcept {
        return *static_cast<jpeg_reader*>(any->client_data);
    }
    [[noreturn]] void leave(::j_common_ptr any) noexcept {
        any->err->format_message(any, text_);
        std::longjmp(back_, 1);
    }
    /// Every scan of a progressive file passes over the whole picture: thousands are a denial-of-service attack.
    void limit_scans() noexcept {
        constexpr int most = 500;
        if (info_.input_scan_number > most) {
            std::snprintf(text_, sizeof text_, "more than %d scans", most);
            std::longjmp(back_, 1);
        }
    }
    /// Handles a warning: refuses a file that ends early; of other damage, libjpeg fills in the lost part of the
    /// picture.
    void hear(::j_common_ptr any) noexcept {
        const int code = any->err->msg_code;
        if (code == JWRN_JPEG_EOF) { leave(any); }
        const bool harmless = code == JWRN_EXTRANEOUS_DATA || code == JWRN_ADOBE_XFORM || code == JWRN_JFIF_MAJOR ||
                              code == JWRN_BOGUS_PROGRESSION;
        damaged_ = damaged_ || !harmless;
    }
    [[noreturn]] void fail() const { throw input_error(std::string{"damaged JPEG: "} + text_); }

    ::jpeg_decompress_struct info_{};
    ::jpeg_error_mgr errors_{};
    ::jpeg_progress_mgr progress_{};
    std::jmp_buf back_{};
    char text_[JMSG_LENGTH_MAX]{};
    bool started_{};
    bool damaged_{};
};

} // namespace detail

PULSE_PICTURES_INLINE picture_size jpeg_size(std::span<const std::uint8_t> bytes) {
    const detail::jpeg_reader reader{bytes};
    reader.require_started();
    return reader.size();
}

PULSE_PICTURES_INLINE int jpeg_orientation(std::span<const std::uint8_t> bytes) {
    const detail::jpeg_reader reader{bytes};
    reader.require_started();
    return reader.orientation();
}

PULSE_PICTURES_INLINE stored_picture decode_jpeg(std::span<const std::uint8_t> bytes, const picture_limits& limits,
                                                 bool) {
    detail::jpeg_reader reader{bytes};
    reader.require_started();
    stored_picture result{detail::room_for(reader.size(), limits), reader.orientation()};
    reader.read(result.colours.pixels);
    result.damaged = reader.damaged();
    return result;
}

} // namespace pulse::data

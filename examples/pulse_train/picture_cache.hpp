#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <pulse/data/encoding_report.hpp>

#include "arguments.hpp"
#include "pictures.hpp"
#include "sample_row.hpp"

namespace pulse_train {

/// What the frozen networks of --from make of the captioned pictures of --data, in the folder --cache.
class picture_cache {
public:
    /// What is made: of a picture the moments of its posterior, of a caption what the model reads of it.
    struct contents {
        std::vector<std::int64_t> moments{};
        sample_row row{};
        std::vector<std::string> picture_components{}; ///< of --from: all that moments depend on
        std::vector<std::string> text_components{};    ///< all that a caption's numbers depend on
    };
    /// Opens what is there; the pictures must outlive it. Throws input_error naming the option and the file: of --from,
    /// of --data where bad pictures are not skipped, or a damaged one of --cache.
    picture_cache(const picture_source& pictures, const arguments& a, const contents& made);
    picture_cache(const picture_cache& other);
    ~picture_cache();
    picture_cache& operator=(const picture_cache&) = delete;

    [[nodiscard]] bool complete() const;
    /// Sees what other ranks have written.
    void refresh();
    /// Removes what a process that was killed had begun, and keeps notes of what was read of --data; to be called where
    /// nothing is written.
    void tidy() const;

    using picture_network = std::function<void(std::span<const float> pixels, std::span<float> moments)>;
    /// Writes a sample's row. Whether the text was cut.
    using text_network = std::function<bool(const std::string& text, std::span<float> row)>;
    /// Makes a rank's share of what is not there. Throws input_error naming a picture that cannot be read where those
    /// are not skipped; what is written by then stays.
    [[nodiscard]] pulse::data::encoding_report encode(int rank, int ranks, const picture_network& picture,
                                                      const text_network& text);

    /// What a sample is made of, where all is there.
    struct sample {
        std::uint32_t picture{};
        std::uint32_t caption{};
        int label{}; ///< as in picture_facts
        bool dropped{};
        std::vector<std::string> refused{}; ///< as in captioned_picture
    };
    /// Throws input_error as picture_source::at does. Any thread may ask.
    [[nodiscard]] sample at(std::uint64_t position) const;
    void read_moments(const sample& one, std::span<float> moments) const;
    [[nodiscard]] picture_facts facts(const sample& one) const;
    /// Writes what the caption decides of the sample's row. Whether the text was cut.
    bool read_caption(const sample& one, std::span<float> row) const;

private:
    struct parts;
    std::unique_ptr<parts> parts_;
};

} // namespace pulse_train

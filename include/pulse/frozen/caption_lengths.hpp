#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <thread>

#include <pulse/core/error.hpp>
#include <pulse/data/captioned_pictures.hpp>
#include <pulse/data/prefetcher.hpp>
#include <pulse/encode/tokenizer.hpp>
#include <pulse/frozen/folder.hpp>
#include <pulse/frozen/picture_source.hpp>
#include <pulse/zoo/frozen_networks.hpp>

namespace pulse::frozen {

/// Lengths of captions in tokens, with the begin and end token of each.
struct caption_lengths {
    double mean{};
    std::uint64_t longest{};
    std::uint64_t cut{};    ///< captions that do not fit whole
    std::uint64_t unread{}; ///< captions that are skipped because they cannot be read
};

/// Over all pictures, in threads. Throws input_error naming a caption that cannot be read, unless bad ones are skipped.
[[nodiscard]] inline caption_lengths lengths_of_captions(const picture_source& source,
                                                         const encode::tokenizer& tokenizer) {
    // A thousand captions take so little time that threads hardly wait for one another.
    constexpr std::uint64_t piece = 1024;
    struct part {
        std::uint64_t tokens{};
        std::uint64_t longest{};
        std::uint64_t cut{};
        std::uint64_t captions{};
        std::uint64_t unread{};
    };
    const data::captioned_pictures& pictures = source.pictures();
    const std::uint64_t pieces = (pictures.size() + piece - 1) / piece;
    const int threads = static_cast<int>(std::clamp<std::uint64_t>(std::thread::hardware_concurrency(), 1, 16));
    data::prefetcher<part> counts{
        [&](std::uint64_t n) {
            part sum;
            for (std::uint64_t i = n * piece; i < std::min<std::uint64_t>((n + 1) * piece, pictures.size()); ++i) {
                const auto which = static_cast<std::uint32_t>(i);
                std::string text;
                try {
                    text = pictures.index().caption(which);
                } catch (const input_error& fault) {
                    if (pictures.options().on_bad_picture == data::bad_picture::stop) {
                        throw input_error{fault.what() + source.advice_for(fault)};
                    }
                    ++sum.unread;
                    continue;
                }
                const encode::encoded_text ids = tokenizer(text, pictures.index().name(which));
                const auto kept = static_cast<std::uint64_t>(std::count(ids.mask.begin(), ids.mask.end(), 1));
                const std::uint64_t tokens = kept + static_cast<std::uint64_t>(ids.cut);
                sum.tokens += tokens;
                sum.longest = std::max(sum.longest, tokens);
                sum.cut += ids.cut > 0 ? 1U : 0U;
                ++sum.captions;
            }
            return sum;
        },
        {.threads = threads, .ahead = 2 * threads}};
    part all;
    for (std::uint64_t n = 0; n != pieces; ++n) {
        const part one = counts.next();
        all = {all.tokens + one.tokens, std::max(all.longest, one.longest), all.cut + one.cut,
               all.captions + one.captions, all.unread + one.unread};
    }
    if (all.captions == 0) {
        throw input_error{"no caption can be read; the first is that of " + pictures.index().name(0)};
    }
    return {static_cast<double>(all.tokens) / static_cast<double>(all.captions), all.longest, all.cut, all.unread};
}

/// The lengths as text, for each tokenizer of a folder; empty where there are none.
template <class Networks>
[[nodiscard]] std::string lengths_of_captions(const picture_source& source) {
    std::string all;
    Networks::each_text([&]<class Component>(const Component*) {
        using files = text_files<Component>;
        const caption_lengths found = lengths_of_captions(source, *files::tokenizer(source.options().networks.folder));
        std::array<char, 160> words{};
        std::snprintf(words.data(), words.size(), "%s%s: %.1f tokens on average, %llu at most, %llu cut at %d",
                      all.empty() ? "" : "; ", Component::tokenizer.str().c_str(), found.mean,
                      static_cast<unsigned long long>(found.longest), static_cast<unsigned long long>(found.cut),
                      Component::chunks.length());
        all += words.data();
        if (found.unread != 0) { all += ", " + std::to_string(found.unread) + " cannot be read and are skipped"; }
    });
    return all;
}

} // namespace pulse::frozen

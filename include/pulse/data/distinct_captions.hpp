#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/data/captioned_pictures.hpp>
#include <pulse/data/picture_index.hpp>

namespace pulse::data {

/// The captions of pictures, each distinct text once.
struct distinct_captions {
    std::vector<std::string> texts{};               ///< the first is empty, for dropped captions and no guidance
    std::vector<std::uint32_t> row_of{};            ///< index in `texts` of each picture's caption
    std::map<std::uint32_t, std::string> refused{}; ///< why a picture's caption cannot be read

    /// Reads all captions. Throws input_error naming one that cannot be read, unless bad pictures are skipped.
    explicit distinct_captions(const picture_index& index, bad_picture on_bad) : texts{std::string{}} {
        std::unordered_map<std::string, std::uint32_t> places{{std::string{}, 0}};
        row_of.resize(index.size());
        for (std::uint32_t i = 0; i != index.size(); ++i) {
            try {
                const auto next = static_cast<std::uint32_t>(texts.size());
                const auto [place, is_new] = places.emplace(index.caption(i), next);
                if (is_new) { texts.push_back(place->first); }
                row_of[i] = place->second;
            } catch (const input_error& fault) {
                if (on_bad == bad_picture::stop) { throw; }
                refused.emplace(i, fault.what());
            }
        }
    }
};

} // namespace pulse::data

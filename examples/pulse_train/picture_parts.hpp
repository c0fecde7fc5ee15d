#pragma once

#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/data/captioned_pictures.hpp>

#include "pictures.hpp"

namespace pulse_train {

inline constexpr std::string_view skip_hint = " (--on-bad-picture skip leaves out what cannot be read)";

/// `act()`, whose faults are those of --data.
template <class Act>
decltype(auto) reading_data(const pulse::data::captioned_pictures& pictures, const Act& act) {
    try {
        return act();
    } catch (const pulse::input_error& fault) {
        const bool stops = pictures.options().on_bad_picture == pulse::data::bad_picture::stop;
        throw pulse::input_error{std::string{"--data: "} + fault.what() + std::string{stops ? skip_hint : ""}};
    }
}

struct picture_source::parts {
    pulse::data::captioned_pictures pictures;
    std::vector<std::uint64_t> captions{}; ///< fingerprints
    std::string text{};
    std::mutex saying{};
    std::set<std::string> said{}; ///< of pictures that are left out
    std::set<std::uint32_t> damaged{};
};

} // namespace pulse_train

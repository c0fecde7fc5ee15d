#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include <pulse/core/error.hpp>
#include <pulse/onednn/convolution.hpp>
#include <pulse/onednn/library.hpp>
#include <pulse/runtime/shape_checks.hpp>

namespace pulse::onednn {

/// The convolutions of a backend, each created on first use.
class convolution_cache {
public:
    /// Throws pulse::error naming the shape when oneDNN refuses it.
    [[nodiscard]] convolution& find(const onednn_engine& engine, const convolution_key& key) {
        const auto found = made_.find(key);
        if (found != made_.end()) { return *found->second; }
        try {
            return *made_.emplace(key, std::make_unique<convolution>(engine, key)).first->second;
        } catch (const error& e) {
            throw error{std::string{e.what()} + " (" + detail::text_of(key.shape, key.batch) + ")"};
        }
    }

    [[nodiscard]] std::int64_t bytes() const noexcept {
        std::int64_t sum = 0;
        for (const auto& [key, made] : made_) { sum += made->bytes(); }
        return sum;
    }

private:
    struct hash {
        [[nodiscard]] std::size_t operator()(const convolution_key& k) const noexcept {
            std::uint64_t h = 0;
            for (const int part :
                 {k.shape.in_channels, k.shape.out_channels, k.shape.in_height, k.shape.in_width, k.shape.kernel,
                  k.shape.stride, k.shape.pad_before, k.shape.pad_after, k.weight_channels, k.batch,
                  static_cast<int>(k.pass), k.adds ? 1 : 0, k.has_bias ? 1 : 0}) {
                h = (h ^ static_cast<std::uint64_t>(static_cast<std::uint32_t>(part))) * 0x9E3779B97F4A7C15U;
                h ^= h >> 29U;
            }
            return static_cast<std::size_t>(h);
        }
    };

    std::unordered_map<convolution_key, std::unique_ptr<convolution>, hash> made_{};
};

} // namespace pulse::onednn

#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <pulse/diffusers/config.hpp>
#include <pulse/diffusers/config_file.hpp>
#include <pulse/io/json_field.hpp>
#include <pulse/nn/one_or_each.hpp>

namespace pulse::diffusers::detail {

using io::json_field;

/// Reads keys of a config.json; `absent` is what the class assumes without the key.
class config_reader {
public:
    /// The file must outlive the reader.
    explicit config_reader(const config_file& file) : root_{file.root()} {}

    [[nodiscard]] const json_field& root() const noexcept { return root_; }
    [[nodiscard]] bool says(const char* key) const { return root_.has(key) && !root_[key].value().is_null(); }
    /// Without `absent`, the key must exist.
    [[nodiscard]] int count(const char* key, int absent = 0) const {
        return says(key) || absent == 0 ? count_in(root_[key]) : absent;
    }
    /// Limited, so that what is computed from it fits an int.
    [[nodiscard]] static int count_in(const json_field& field) {
        constexpr int most = 1 << 20;
        const int value = field.count();
        if (value > most) { field.fail("must be at most " + std::to_string(most)); }
        return value;
    }
    [[nodiscard]] bool flag(const char* key, bool absent) const {
        return root_.has(key) ? root_[key].boolean() : absent;
    }
    [[nodiscard]] double number(const char* key, double absent) const {
        return root_.has(key) ? root_[key].number() : absent;
    }
    [[nodiscard]] std::string text(const char* key, const char* absent) const {
        return !root_.has(key) ? absent : root_[key].value().is_null() ? std::string{} : root_[key].text();
    }
    /// Entries of a list of 1 to 8; empty where the key has a single value or is absent.
    [[nodiscard]] std::vector<json_field> list(const char* key) const {
        if (!root_.has(key) || !root_[key].value().is_array()) { return {}; }
        return entries(root_[key]);
    }
    [[nodiscard]] static std::vector<json_field> entries(const json_field& all) {
        if (all.size() == 0 || all.size() > 8) { all.fail("must be a list of 1 to 8 values"); }
        return all.list();
    }
    /// The entries of a list as numbers.
    [[nodiscard]] static one_or_each<int> counts_in(const json_field& all) {
        one_or_each<int> read{};
        for (const json_field& one : entries(all)) {
            read.values[static_cast<std::size_t>(read.count++)] = count_in(one);
        }
        return read;
    }
    /// The entry for a level, or the value for all levels; `absent` if there is none.
    [[nodiscard]] int count_at(const char* key, int level, int absent) const {
        const std::vector<json_field> all = list(key);
        if (all.empty()) { return count(key, absent); }
        const auto at = static_cast<std::size_t>(level);
        return at >= all.size() || all[at].value().is_null() ? absent : count_in(all[at]);
    }

private:
    json_field root_;
};

/// Throws input_error if the file says anything that `network` does not (require_fit).
inline void require_whole(component_config network, const config_file& file) {
    network.model.clear();
    require_fit(network, file.value(), file.source());
}

} // namespace pulse::diffusers::detail

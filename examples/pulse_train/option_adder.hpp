#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include <pulse/core/text_table.hpp>

#include "../command_line.hpp"
#include "arguments.hpp"

namespace pulse_train {

using pulse_examples::choices;

/// The value of options left to the tuner.
inline constexpr const char* left_open = "tuned";

/// Whether replicas share the optimizer's state.
enum class sharding { no, yes, tuned };

/// Options of one process: ranks may differ in them.
inline constexpr std::array<std::string_view, 5> of_one_process{"--threads", "--timeout", "--rank", "--world-size",
                                                                "--local-rank"};

/// The values of arguments that every rank must be given alike, read after parsing.
class common_arguments {
public:
    template <class T>
    void add(const std::string& name, const T& value) {
        if constexpr (std::is_same_v<T, std::string>) {
            all_.emplace_back(name, [&value] { return value; });
        } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
            all_.emplace_back(name, [&value] {
                std::string all;
                for (const std::string& one : value) { all += one + '\n'; }
                return all;
            });
        } else if constexpr (std::is_same_v<T, std::vector<int>>) {
            all_.emplace_back(name, [&value] {
                std::string all;
                for (const int one : value) { all += std::to_string(one) + ' '; }
                return all;
            });
        } else if constexpr (std::is_floating_point_v<T>) {
            all_.emplace_back(name, [&value] { return pulse::exact_text(value); });
        } else if constexpr (std::is_integral_v<T>) {
            all_.emplace_back(name, [&value] { return std::to_string(value); });
        }
    }
    template <class T>
    void add(const std::string& name, const std::optional<T>& value) {
        all_.emplace_back(name, [&value] { return value ? std::to_string(*value) : std::string{left_open}; });
    }
    template <class T>
    void add(const std::string& name, const T& value, const choices<T>& names) {
        all_.emplace_back(name, [&value, &names] { return name_in(names, value); });
    }
    template <class T>
    void add(const std::string& name, const std::optional<T>& value, const choices<T>& names) {
        all_.emplace_back(name, [&value, &names] { return value ? name_in(names, *value) : std::string{left_open}; });
    }
    [[nodiscard]] std::vector<std::pair<std::string, std::string>> values() const {
        std::vector<std::pair<std::string, std::string>> read;
        for (const auto& [name, value] : all_) {
            if (std::find(of_one_process.begin(), of_one_process.end(), name) == of_one_process.end()) {
                read.emplace_back(name, value());
            }
        }
        return read;
    }

private:
    template <class T>
    [[nodiscard]] static std::string name_in(const choices<T>& names, const T& value) {
        const auto is_it = [&](const auto& one) { return one.second == value; };
        return std::find_if(names.begin(), names.end(), is_it)->first;
    }

    std::vector<std::pair<std::string, std::function<std::string()>>> all_{};
};

/// Adds options to a command line and to the common arguments. Names of choices must outlive it.
struct option_adder {
    CLI::App& app;
    common_arguments common{};

    CLI::Option* file_or_folder(const char* name, std::string& value, const char* what, const char* meaning) {
        return app.add_option(name, value, meaning)->type_name(what);
    }
    template <class T>
    CLI::Option* value(const char* name, T& held, const CLI::Validator& check, const char* meaning) {
        common.add(name, held);
        return app.add_option(name, held, meaning)->check(check);
    }
    template <class T, class Names>
    CLI::Option* choice(const char* name, T& held, const Names& names, const char* usual, const char* meaning) {
        common.add(name, held, names);
        return app.add_option(name, held, meaning)
            ->transform(pulse_examples::one_of(names))
            ->type_name(pulse_examples::names_in(names))
            ->default_str(usual);
    }
    template <class T>
    void tuned_value(const char* name, T& held, const CLI::Validator& check, const char* meaning) {
        common.add(name, held);
        app.add_option(name, held, meaning)->check(check)->default_str(left_open);
    }
};

/// Command-line values that `arguments` stores in another form.
struct said_arguments {
    std::string validation{};
    std::string control_data{};
    std::string prompt_file{};
    bool export_halves{};
    sharding shard_optimizer{sharding::no};
};

/// Checks that several options share.
[[nodiscard]] inline CLI::Validator positive() {
    return pulse_examples::number(std::numeric_limits<double>::min(), std::numeric_limits<double>::max(), "above 0");
}
[[nodiscard]] inline CLI::Validator not_negative() {
    return pulse_examples::number(0.0, std::numeric_limits<double>::max(), "from 0");
}
[[nodiscard]] inline CLI::Validator count() {
    return pulse_examples::number(std::int64_t{0}, std::numeric_limits<std::int64_t>::max(), "from 0");
}
/// As many steps as any run can have; samples of all steps can then be counted.
[[nodiscard]] inline CLI::Validator steps() {
    return pulse_examples::number(std::int64_t{0}, std::int64_t{1'000'000'000'000}, "from 0 to 10^12");
}
[[nodiscard]] inline const choices<bool>& yes_or_no() {
    static const choices<bool> answers{{"yes", true}, {"no", false}};
    return answers;
}

/// Data and result: training and validation data, the start and the output of the run, and the drawn pictures.
void add_data_options(option_adder& add, arguments& a, said_arguments& said);

/// Where the run executes, and its plan.
void add_plan_options(option_adder& add, arguments& a, said_arguments& said);

} // namespace pulse_train

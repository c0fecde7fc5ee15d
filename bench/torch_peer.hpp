#pragma once

#include <cmath>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "blocks.hpp"
#include "peer_process.hpp"
#include "training_step.hpp"

namespace pulse_bench {

/// How the peer of bench_blocks is started.
struct torch_options {
    std::string python{};
    std::string script{};
    std::string device{};
    std::string precision{};
    std::vector<std::string> modes{};
};

/// What PyTorch took for a layer or a step, in one of its modes.
struct torch_figures {
    step_figures step{};
    std::vector<double> agreed{}; ///< in the order of block_row::agreed and step_figures::agreed
};

/// blocks_peer.py in one mode; the first request starts its process.
class torch_peer {
public:
    torch_peer(const torch_options& options, const std::string& mode) :
        command_{options.python, options.script, "--mode",      mode,
                 "--device",     options.device, "--precision", options.precision} {}

    /// Its answer, or one with a failure.
    [[nodiscard]] nlohmann::json ask(const nlohmann::json& what) {
        try {
            if (!process_) { process_ = std::make_unique<peer_process>(command_); }
            return nlohmann::json::parse(process_->ask(what.dump()));
        } catch (const std::exception& e) {
            process_.reset(); // the next request starts a new one
            return {{"failure", e.what()}};
        }
    }
    [[nodiscard]] torch_figures figures(const nlohmann::json& what) {
        const nlohmann::json answer = ask(what);
        torch_figures found;
        found.step.failure = answer.value("failure", "");
        found.step.seconds = answer.value("seconds", 0.0);
        found.step.spread_percent = answer.value("spread_percent", 0.0);
        found.step.bytes = answer.value("bytes", std::int64_t{});
        found.step.loss = answer.value("loss", 0.0);
        found.step.gradient_norm = answer.value("gradient_norm", 0.0);
        found.step.parameters = answer.value("parameters", std::int64_t{});
        found.agreed = answer.value("agreed", std::vector<double>{});
        return found;
    }

private:
    std::vector<std::string> command_;
    std::unique_ptr<peer_process> process_{};
};

[[nodiscard]] inline nlohmann::json request_of(const block_layer& l, int batch, int rounds) {
    return {{"what", "layer"},
            {"side", l.side},
            {"channels", l.channels},
            {"skip", l.skip},
            {"conditioning", l.conditioning},
            {"text_features", l.text_features},
            {"tokens", l.tokens},
            {"head_size", l.head_size},
            {"batch", batch},
            {"rounds", rounds}};
}

/// How many numbers differ; all if the other side has another count.
[[nodiscard]] inline std::int64_t differing(const std::vector<agreed_number>& own, const std::vector<double>& other) {
    if (own.size() != other.size()) { return static_cast<std::int64_t>(own.size()); }
    std::int64_t count = 0;
    for (std::size_t i = 0; i != own.size(); ++i) {
        count += std::abs(own[i].value - other[i]) <= own[i].tolerance ? 0 : 1;
    }
    return count;
}

} // namespace pulse_bench

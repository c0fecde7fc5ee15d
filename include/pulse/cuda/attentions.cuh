#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include <cuda_runtime.h>

#include <pulse/cuda/attention.cuh>
#include <pulse/cuda/attention_engine.cuh>
#include <pulse/cuda/cudnn/attention.cuh>
#include <pulse/cuda/cudnn/attention_rules.cuh>
#include <pulse/cuda/cudnn/choose_engine.cuh>
#include <pulse/cuda/cudnn/engines.cuh>
#include <pulse/cuda/cudnn/graph.cuh>
#include <pulse/cuda/cudnn/ready_engine.cuh>
#include <pulse/cuda/cudnn/run_time_compiler.cuh>
#include <pulse/cuda/device.cuh>
#include <pulse/cuda/engine_options.cuh>
#include <pulse/cuda/memory.cuh>
#include <pulse/cuda/precision.cuh>
#include <pulse/cuda/queue.cuh>
#include <pulse/cuda/scratch.cuh>
#include <pulse/runtime/backend.hpp>

namespace pulse::cuda {

/// Which passes of attention are cuDNN's where it has an engine for them and nothing is known against it
/// (cudnn::attention_fault); all others are pulse's own. cuDNN takes 16-bit scalars only.
struct attention_options {
    bool cudnn_forward{true};
    /// cuDNN adds the gradients of queries in an order that varies, so that results may differ from run to run in their
    /// last bits: pulse's kernels are the default.
    bool cudnn_backward{false};
};

/// Attention by cuDNN or by pulse's own kernels under precision policy P: attention and attention_backward of
/// cuda/attention.cuh, with an engine chosen once for each shape and batch. cuDNN is started, and an engine is made,
/// when a shape first needs it; the heuristics' first one is taken, as cuDNN compiles each for a second or more. One
/// line on stderr says so when an engine could not be made.
template <class P>
class attentions {
public:
    using scalar = typename P::scalar;
    using pass = cudnn::attention_pass;

    /// Throws input_error on bad options.
    attentions(const attention_options& options, const engine_options& engines) :
        options_{options}, engine_options_{engines} {
        engine_options_.require_valid();
        engine_options_.candidates = 0;
        engine_options_.choices = nullptr;
    }

    /// What computes a pass over aligned operands. Throws input_error on shapes that have no engine
    /// (require_attention), and where an engine has to be made while the stream is captured.
    [[nodiscard]] attention_engine engine_of(cudaStream_t stream, pass which, const attention_shape& s, int batch) {
        require_attention(s, batch);
        const cudnn::ready_engine* const engine = find(stream, which, s, batch);
        return engine != nullptr ? attention_engine::cudnn : own_attention_engine<P>(s, batch);
    }

    /// Writes o and lse.
    void forward(const queue& on, scratch_arena& scratch, const attention_shape& s, int batch, const scalar* q,
                 const scalar* k, const scalar* v, scalar* o, float* lse) {
        using id = cudnn::attention_graph;
        require_attention(s, batch);
        const cudnn::ready_engine* const engine =
            is_packable<scalar>(0, q, k, v, o, lse) ? find(on.stream, pass::forward, s, batch) : nullptr;
        if (engine == nullptr) { return attention<P>(on, s, batch, q, k, v, o, lse); }
        const float scale = attention_scale(s);
        const std::array<cudnn::ready_engine::binding, 6> bindings{
            {{id::q, q}, {id::k, k}, {id::v, v}, {id::o, o}, {id::lse, lse}, {id::scale, &scale}}};
        run(on.stream, *engine, bindings, scratch.reserve(static_cast<std::size_t>(engine->workspace_bytes())));
    }

    /// Writes dq, dk and dv.
    void backward(const queue& on, scratch_arena& scratch, const attention_shape& s, int batch, const scalar* q,
                  const scalar* k, const scalar* v, const scalar* o, const float* lse, const scalar* dout, scalar* dq,
                  scalar* dk, scalar* dv) {
        using id = cudnn::attention_graph;
        require_attention(s, batch);
        const cudnn::ready_engine* const engine = is_packable<scalar>(0, q, k, v, o, lse, dout, dq, dk, dv)
                                                      ? find(on.stream, pass::backward, s, batch)
                                                      : nullptr;
        if (engine == nullptr) {
            queue own = on;
            own.scratch = scratch.reserve(attention_backward_scratch_bytes<P>(s, batch));
            return attention_backward<P>(own, s, batch, q, k, v, o, lse, dout, dq, dk, dv);
        }
        const std::int64_t rows = std::int64_t{batch} * s.heads * s.tokens;
        const auto lay = [&](scratch_pieces& pieces) {
            float* const delta = pieces.take<float>(rows);
            float* const sums = pieces.take<float>(rows * s.head_size);
            return std::tuple{delta, sums, pieces.take<std::byte>(engine->workspace_bytes())};
        };
        scratch_pieces sizes;
        lay(sizes);
        scratch_pieces pieces{scratch.reserve(sizes.bytes())};
        const auto [delta, sums, workspace] = lay(pieces);
        fill_bytes_async(sums, 0, static_cast<std::size_t>(rows * s.head_size), on.stream);
        const float scale = attention_scale(s);
        const float one = 1.0F;
        const std::array<cudnn::ready_engine::binding, 13> bindings{{{id::q, q},
                                                                     {id::k, k},
                                                                     {id::v, v},
                                                                     {id::o, o},
                                                                     {id::lse, lse},
                                                                     {id::scale, &scale},
                                                                     {id::dout, dout},
                                                                     {id::dq, dq},
                                                                     {id::dk, dk},
                                                                     {id::dv, dv},
                                                                     {id::delta, delta},
                                                                     {id::dq_sums, sums},
                                                                     {id::one, &one}}};
        run(on.stream, *engine, bindings, workspace);
    }

    /// A line for each pass, shape and batch that was met so far: what computes it, and why cuDNN, which was asked for,
    /// does not.
    [[nodiscard]] std::string report() const {
        std::string text;
        for (const auto& [met, found] : plans_) {
            const auto& [which, tokens, keys, heads, head_size, batch] = met;
            const attention_shape s{tokens, heads, head_size, keys};
            const attention_engine engine = found.engine ? attention_engine::cudnn : own_attention_engine<P>(s, batch);
            text += text_of(which, s, batch) + ": " + name_of(engine) +
                    (found.fault.empty() ? "" : "; cuDNN: " + found.fault) + "\n";
        }
        return text;
    }

private:
    /// pass, tokens, keys, heads, head_size, batch
    using key = std::tuple<pass, int, int, int, int, int>;
    struct prepared {
        cudnn::ready_engine engine{};
        std::string fault{}; ///< why there is none, where cuDNN was asked for
    };

    template <std::size_t N>
    void run(cudaStream_t stream, const cudnn::ready_engine& engine,
             const std::array<cudnn::ready_engine::binding, N>& bindings, std::byte* workspace) {
        dnn_->use(stream);
        engine.run(dnn_->get(), bindings, workspace);
    }
    /// cuDNN's engine, or null where pulse's own kernels compute.
    [[nodiscard]] const cudnn::ready_engine* find(cudaStream_t stream, pass which, const attention_shape& s,
                                                  int batch) {
        const key wanted{which, s.tokens, s.keys(), s.heads, s.head_size, batch};
        auto found = plans_.find(wanted);
        if (found == plans_.end()) { found = plans_.emplace(wanted, make_plan(stream, which, s, batch)).first; }
        return found->second.engine ? &found->second.engine : nullptr;
    }
    [[nodiscard]] prepared make_plan(cudaStream_t stream, pass which, const attention_shape& s, int batch) {
        if constexpr (sizeof(scalar) == 2) {
            if (which == pass::forward ? options_.cudnn_forward : options_.cudnn_backward) {
                require_not_captured(stream, "an engine of an attention has to be made");
                const std::string_view fault =
                    cudnn::attention_fault(which, s, properties_of(current_device()).sm(), cudnnGetVersion());
                if (!fault.empty()) { return {{}, std::string{fault}}; }
                return ask(stream, {s, batch, which, cudnn::data_type<scalar>()});
            }
        }
        return {};
    }
    [[nodiscard]] prepared ask(cudaStream_t stream, const cudnn::attention_graph& graph) {
        if (!dnn_) {
            dnn_.emplace();
            device_ = device_key();
        }
        cudnn::choice chosen;
        std::string refused_graph;
        try {
            chosen = cudnn::choose_engine(*dnn_, stream, cudnn::make_graph(graph, dnn_->get()), {}, engine_options_,
                                          device_, {}, {});
        } catch (const cudnn::cudnn_error& e) { refused_graph = e.what(); }
        if (chosen.made) { return {std::move(chosen.made), {}}; }
        std::string fault =
            refused_graph.empty() ? cudnn::why_none(*dnn_, chosen) : "it takes no such graph: " + refused_graph;
        const bool lacks =
            !chosen.refusal.empty() || !refused_graph.empty() || !cudnn::compiles_at_run_time({dnn_->get(), {}});
        if (lacks && !std::exchange(said_lacking_, true)) {
            std::fprintf(stderr, "pulse: %s is pulse's, not cuDNN's: %s\n",
                         text_of(graph.pass, graph.shape, graph.batch).c_str(), fault.c_str());
        }
        return {{}, std::move(fault)};
    }
    [[nodiscard]] static std::string text_of(pass which, const attention_shape& s, int batch) {
        return std::string{"attention "} + (which == pass::forward ? "forward" : "backward") + ", batch " +
               std::to_string(batch) + ", " + std::to_string(s.tokens) + " tokens to " + std::to_string(s.keys()) +
               ", " + std::to_string(s.heads) + " heads of " + std::to_string(s.head_size);
    }

    attention_options options_;
    engine_options engine_options_;
    std::optional<cudnn::library> dnn_{};
    std::string device_{};
    std::map<key, prepared> plans_{};
    bool said_lacking_{};
};

} // namespace pulse::cuda

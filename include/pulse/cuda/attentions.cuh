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

/// Which passes of attention use cuDNN where it has an engine without known faults (cudnn::attention_fault); all others
/// use pulse's own kernels. cuDNN supports 16-bit scalars only. Where engines are timed, the faster of cuDNN's and
/// pulse's is used; a tie goes to the one that these options name.
struct attention_options {
    bool cudnn_forward{true};
    /// cuDNN sums the gradients of queries in a varying order, so results may differ between runs in their last bits.
    /// So pulse's kernels are the default, and cuDNN's engine is timed only if engine_options do not ask for
    /// determinism.
    bool cudnn_backward{false};
};

/// Attention by cuDNN or by pulse's own kernels under precision policy P: attention and attention_backward of
/// cuda/attention.cuh, with an engine chosen once per shape and batch. cuDNN is started, and an engine is made, when a
/// shape first needs it. Only the heuristics' first engine is used or timed, because cuDNN takes a second or more to
/// compile each. One line on stderr says so when an engine could not be made.
template <class P>
class attentions {
public:
    using scalar = typename P::scalar;
    using pass = cudnn::attention_pass;

    /// Throws input_error on bad options.
    attentions(const attention_options& options, const engine_options& engines) :
        options_{options}, engine_options_{engines}, untimed_{engines} {
        engine_options_.require_valid();
        untimed_.candidates = 0;
        untimed_.choices = nullptr;
    }

    /// The engine for a pass over aligned operands. Throws input_error on shapes that no engine supports
    /// (require_attention), and if an engine would have to be made while the stream is captured.
    [[nodiscard]] attention_engine engine_of(cudaStream_t stream, pass which, const attention_shape& s, int batch) {
        require_attention(s, batch);
        return find(stream, which, s, batch).engine ? attention_engine::cudnn : own_attention_engine<P>(s, batch);
    }

    /// Writes o and lse.
    void forward(const queue& on, scratch_arena& scratch, const attention_shape& s, int batch, const scalar* q,
                 const scalar* k, const scalar* v, scalar* o, float* lse) {
        require_attention(s, batch);
        const cudnn::ready_engine* const engine =
            is_packable<scalar>(0, q, k, v, o, lse) ? use(on.stream, pass::forward, s, batch) : nullptr;
        forward_by(engine, on, scratch, s, batch, q, k, v, o, lse);
    }

    /// Writes dq, dk and dv.
    void backward(const queue& on, scratch_arena& scratch, const attention_shape& s, int batch, const scalar* q,
                  const scalar* k, const scalar* v, const scalar* o, const float* lse, const scalar* dout, scalar* dq,
                  scalar* dk, scalar* dv) {
        require_attention(s, batch);
        const cudnn::ready_engine* const engine = is_packable<scalar>(0, q, k, v, o, lse, dout, dq, dk, dv)
                                                      ? use(on.stream, pass::backward, s, batch)
                                                      : nullptr;
        backward_by(engine, on, scratch, s, batch, q, k, v, o, lse, dout, dq, dk, dv);
    }

    /// One line per pass, shape and batch seen so far: what computes it, and the reason if cuDNN was requested but does
    /// not.
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
        cudnn::ready_engine engine{}; ///< none if pulse's own kernels are used
        std::string fault{};          ///< why there is none although cuDNN was requested
        engine_choice* counted{};
    };
    /// How a kept choice names pulse's own kernel.
    static constexpr const char* own_kernel = "pulse";

    /// Uses pulse's own kernels if the engine is null.
    void forward_by(const cudnn::ready_engine* engine, const queue& on, scratch_arena& scratch,
                    const attention_shape& s, int batch, const scalar* q, const scalar* k, const scalar* v, scalar* o,
                    float* lse) {
        using id = cudnn::attention_graph;
        if (engine == nullptr) { return attention<P>(on, s, batch, q, k, v, o, lse); }
        const float scale = attention_scale(s);
        const std::array<cudnn::ready_engine::binding, 6> bindings{
            {{id::q, q}, {id::k, k}, {id::v, v}, {id::o, o}, {id::lse, lse}, {id::scale, &scale}}};
        run(on.stream, *engine, bindings, scratch.reserve(static_cast<std::size_t>(engine->workspace_bytes())));
    }
    void backward_by(const cudnn::ready_engine* engine, const queue& on, scratch_arena& scratch,
                     const attention_shape& s, int batch, const scalar* q, const scalar* k, const scalar* v,
                     const scalar* o, const float* lse, const scalar* dout, scalar* dq, scalar* dk, scalar* dv) {
        using id = cudnn::attention_graph;
        if (engine == nullptr) {
            queue own = on;
            own.scratch = scratch.reserve(attention_backward_scratch_bytes<P>(s, batch));
            return attention_backward<P>(own, s, batch, q, k, v, o, lse, dout, dq, dk, dv);
        }
        const std::int64_t rows = std::int64_t{batch} * s.heads * s.tokens;
        const auto [delta, sums, workspace] = lay_pieces(scratch, [&](scratch_pieces& pieces) {
            return std::tuple{pieces.take<float>(rows), pieces.take<float>(rows * s.head_size),
                              pieces.take<std::byte>(engine->workspace_bytes())};
        });
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

    template <std::size_t N>
    void run(cudaStream_t stream, const cudnn::ready_engine& engine,
             const std::array<cudnn::ready_engine::binding, N>& bindings, std::byte* workspace) {
        dnn_->use(stream);
        engine.run(dnn_->get(), bindings, workspace);
    }
    /// cuDNN's engine, or null if pulse's own kernels are used.
    [[nodiscard]] const cudnn::ready_engine* use(cudaStream_t stream, pass which, const attention_shape& s, int batch) {
        const prepared& p = find(stream, which, s, batch);
        engine_options_.count(p.counted);
        return p.engine ? &p.engine : nullptr;
    }
    [[nodiscard]] const prepared& find(cudaStream_t stream, pass which, const attention_shape& s, int batch) {
        const key wanted{which, s.tokens, s.keys(), s.heads, s.head_size, batch};
        auto found = plans_.find(wanted);
        if (found == plans_.end()) { found = plans_.emplace(wanted, make_plan(stream, which, s, batch)).first; }
        return found->second;
    }
    [[nodiscard]] prepared make_plan(cudaStream_t stream, pass which, const attention_shape& s, int batch) {
        if constexpr (sizeof(scalar) == 2) {
            const bool usual = which == pass::forward ? options_.cudnn_forward : options_.cudnn_backward;
            const bool chooses = engine_options_.times() || engine_options_.choices != nullptr;
            if (usual || (chooses && (which == pass::forward || !engine_options_.deterministic))) {
                require_not_captured(stream, "an attention needs a new engine");
                const std::string_view fault =
                    cudnn::attention_fault(which, s, properties_of(current_device()).sm(), cudnnGetVersion());
                if (!fault.empty()) { return {{}, std::string{fault}, nullptr}; }
                if (!dnn_) {
                    dnn_.emplace();
                    device_ = device_key();
                }
                const cudnn::attention_graph graph{s, batch, which, cudnn::data_type<scalar>()};
                return chooses ? choose(stream, graph, usual) : ask(stream, graph);
            }
        }
        return {};
    }
    /// The kept choice if there is one, else the faster engine where engines are timed, else cuDNN's if it is `usual`.
    [[nodiscard]] prepared choose(cudaStream_t stream, const cudnn::attention_graph& graph, bool usual) {
        const std::string made_for = cudnn::choices_hold_for(device_, engine_options_);
        const std::string name = text_of(graph.pass, graph.shape, graph.batch);
        const std::string what = rules().text() + name + ", " + P::name;
        if (const auto kept = engine_options_.find(made_for, what)) {
            if (kept->text == own_kernel) { return {{}, {}, kept->counted}; }
            try {
                return {cudnn::ready_engine{cudnn::target{dnn_->get(), {}}, kept->text}, {}, kept->counted};
            } catch (const cudnn::cudnn_error& e) {
                std::fprintf(stderr, "pulse: ignoring a kept engine: %s\n", e.what());
            }
        }
        const engine_trial trial{engine_options_};
        const bool compares = engine_options_.next_candidates() > 1;
        prepared made = usual || compares ? ask(stream, graph) : prepared{};
        if (!engine_options_.times()) { return made; }
        engine_choice chosen;
        chosen.name = name;
        if (compares) { chosen.seconds = trial.seconds(); } // finding that cuDNN has none took time, too
        if (compares && made.engine && !is_quicker(stream, graph, made.engine, usual, trial, chosen)) {
            made.engine = {};
        }
        chosen.engine = made.engine ? made.engine.json() : own_kernel;
        made.counted = engine_options_.keep(made_for, what, std::move(chosen));
        return made;
    }
    /// Whether cuDNN's engine is faster than pulse's kernels, or as fast and `usual`; timed on separate memory.
    [[nodiscard]] bool is_quicker(cudaStream_t stream, const cudnn::attention_graph& graph,
                                  const cudnn::ready_engine& engine, bool usual, const engine_trial& trial,
                                  engine_choice& timed) {
        const attention_shape& s = graph.shape;
        const auto zeros = [stream]<class T>(T, std::int64_t n) {
            device_memory<T> made{static_cast<std::size_t>(n)};
            fill_bytes_async(made.data(), 0, made.size(), stream);
            return made;
        };
        const bool back = graph.pass == pass::backward;
        const std::int64_t rows = std::int64_t{graph.batch} * s.tokens;
        const std::int64_t queries = rows * s.width();
        const std::int64_t keys = std::int64_t{graph.batch} * s.keys() * s.width();
        const auto q = zeros(scalar{}, queries);
        const auto k = zeros(scalar{}, keys);
        const auto v = zeros(scalar{}, keys);
        auto o = zeros(scalar{}, queries);
        auto lse = zeros(float{}, rows * s.heads);
        const auto dout = zeros(scalar{}, back ? queries : 0);
        auto dq = zeros(scalar{}, back ? queries : 0);
        auto dk = zeros(scalar{}, back ? keys : 0);
        auto dv = zeros(scalar{}, back ? keys : 0);
        const queue on{stream, properties_of(current_device()).multiprocessors, nullptr};
        scratch_arena scratch{stream};
        const std::size_t of_cudnn = usual ? 0 : 1;
        const fastest_candidate found = fastest(
            stream, 2,
            [&](std::size_t i) {
                const cudnn::ready_engine* const by = i == of_cudnn ? &engine : nullptr;
                if (back) {
                    return backward_by(by, on, scratch, s, graph.batch, q.data(), k.data(), v.data(), o.data(),
                                       lse.data(), dout.data(), dq.data(), dk.data(), dv.data());
                }
                forward_by(by, on, scratch, s, graph.batch, q.data(), k.data(), v.data(), o.data(), lse.data());
            },
            [&] { return trial.is_over(); });
        check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
        timed.note_times(found.seconds, found.first_seconds, trial.seconds());
        return found.index == of_cudnn;
    }
    [[nodiscard]] cudnn::engine_rules rules() const noexcept { return {true, true, engine_options_.deterministic}; }
    [[nodiscard]] prepared ask(cudaStream_t stream, const cudnn::attention_graph& graph) {
        cudnn::choice chosen;
        std::string refused_graph;
        try {
            chosen = cudnn::choose_engine(*dnn_, stream, cudnn::make_graph(graph, dnn_->get()), rules(), untimed_,
                                          device_, {}, {});
        } catch (const cudnn::cudnn_error& e) { refused_graph = e.what(); }
        if (chosen.made) { return {std::move(chosen.made), {}, nullptr}; }
        std::string fault =
            refused_graph.empty() ? cudnn::why_none(*dnn_, chosen) : "it does not support this graph: " + refused_graph;
        const bool lacks =
            !chosen.refusal.empty() || !refused_graph.empty() || !cudnn::compiles_at_run_time({dnn_->get(), {}});
        if (lacks && !std::exchange(said_lacking_, true)) {
            std::fprintf(stderr, "pulse: %s uses pulse's kernels instead of cuDNN: %s\n",
                         text_of(graph.pass, graph.shape, graph.batch).c_str(), fault.c_str());
        }
        return {{}, std::move(fault), nullptr};
    }
    [[nodiscard]] static std::string text_of(pass which, const attention_shape& s, int batch) {
        return std::string{"attention "} + (which == pass::forward ? "forward" : "backward") + ", batch " +
               std::to_string(batch) + ", " + std::to_string(s.tokens) + " tokens to " + std::to_string(s.keys()) +
               ", " + std::to_string(s.heads) + " heads of " + std::to_string(s.head_size);
    }

    attention_options options_;
    engine_options engine_options_;
    engine_options untimed_; ///< for taking cuDNN's first proposal
    std::optional<cudnn::library> dnn_{};
    std::string device_{};
    std::map<key, prepared> plans_{};
    bool said_lacking_{};
};

} // namespace pulse::cuda

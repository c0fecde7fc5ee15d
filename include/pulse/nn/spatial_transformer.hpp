#pragma once

#include <cstdint>

#include <pulse/core/label.hpp>
#include <pulse/nn/block.hpp>
#include <pulse/nn/pointwise.hpp>
#include <pulse/nn/text_block.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/layer_frame.hpp>

namespace pulse::nn {

/// The beginning of a transformer that is cut into layers: norm and proj_in. Its layer is named <transformer>.proj_in.
/// Saves the normed image and its statistics.
struct transformer_in {
    text_attention core{};
    bool linear_projection{true};

    [[nodiscard]] constexpr flaw defect() const noexcept { return core.defect(); }
    [[nodiscard]] constexpr extent input() const noexcept { return core.shape(); }
    [[nodiscard]] constexpr extent skip_input() const noexcept { return {}; }
    [[nodiscard]] constexpr extent residual_input() const noexcept { return {}; }
    [[nodiscard]] constexpr extent output() const noexcept { return core.shape(); }
    [[nodiscard]] constexpr extent context() const noexcept { return {}; }
    [[nodiscard]] constexpr int conditioning_features() const noexcept { return 0; }

    template <class Description>
    constexpr void describe(Description& d, const label& name) const {
        d.within(parent_of(name));
        core.describe_in(d, linear_projection);
    }
    /// `name` without its last part.
    [[nodiscard]] static constexpr label parent_of(const label& name) {
        return label{name.view().substr(0, name.empty() ? 0 : name.view().rfind('.'))};
    }

    [[nodiscard]] constexpr std::int64_t parameter_elements() const noexcept {
        return 2 * std::int64_t{core.channels} + core.projection_elements();
    }
    [[nodiscard]] constexpr std::int64_t saved_elements() const noexcept { return core.image(); }
    [[nodiscard]] constexpr std::int64_t statistics_elements() const noexcept { return 2 * std::int64_t{core.groups}; }
    [[nodiscard]] constexpr std::int64_t deferred_elements() const noexcept { return 0; }
    /// The gradient of the normed image, and a place for the input's where nobody reads it.
    [[nodiscard]] constexpr std::int64_t workspace_elements() const noexcept { return 2 * core.image(); }

    template <backend B>
    void forward(B& on, const backend_frame<B>& f) const {
        const auto* const w = f.parameters;
        const int c = core.channels;
        on.group_norm(core.norm(), f.batch, f.input, nullptr, w, w + c, f.saved, f.statistics);
        core.projection().apply(on, f.batch * core.tokens(), f.saved, w + 2 * c, f.output);
    }
    /// Adds to the input's gradient where `how` says so.
    template <backend B>
    void backward_input(B& on, const backend_frame<B>& f, into how) const {
        const auto* const w = f.parameters;
        const int c = core.channels;
        const std::int64_t n = f.batch * core.image();
        auto* const normal_gradient = f.workspace;
        auto* const nobody = f.workspace + n;
        on.linear_backward_input(core.projection().matrix(), f.batch * core.tokens(), f.output_gradient, w + 2 * c,
                                 normal_gradient, into::write);
        const bool wanted = f.input_gradient != nullptr;
        on.group_norm_backward(core.norm(), f.batch, f.input, nullptr, w, w + c, f.statistics, normal_gradient,
                               wanted ? f.input_gradient : nobody, nullptr, f.parameter_gradients,
                               f.parameter_gradients + c, wanted ? how : into::write);
    }
    template <backend B>
    void backward_input(B& on, const backend_frame<B>& f) const {
        backward_input(on, f, into::write);
    }
    template <backend B>
    void backward_weight(B& on, const backend_frame<B>& f) const {
        core.projection().apply_backward_weight(on, f.batch * core.tokens(), f.saved, f.output_gradient,
                                                f.parameter_gradients + 2 * core.channels);
    }
};

/// The end of a transformer that is cut into layers: proj_out, and what came into its beginning is added. Its layer is
/// named <transformer>.proj_out. Saves nothing.
struct transformer_out {
    text_attention core{};
    bool linear_projection{true};

    [[nodiscard]] constexpr flaw defect() const noexcept { return core.defect(); }
    [[nodiscard]] constexpr extent input() const noexcept { return core.shape(); }
    [[nodiscard]] constexpr extent skip_input() const noexcept { return {}; }
    [[nodiscard]] constexpr extent residual_input() const noexcept { return core.shape(); }
    [[nodiscard]] constexpr extent output() const noexcept { return core.shape(); }
    [[nodiscard]] constexpr extent context() const noexcept { return {}; }
    [[nodiscard]] constexpr int conditioning_features() const noexcept { return 0; }

    template <class Description>
    constexpr void describe(Description& d, const label& name) const {
        d.within(transformer_in::parent_of(name));
        core.describe_out(d, linear_projection);
    }

    [[nodiscard]] constexpr std::int64_t saved_elements() const noexcept { return 0; }
    [[nodiscard]] constexpr std::int64_t statistics_elements() const noexcept { return 0; }
    [[nodiscard]] constexpr std::int64_t deferred_elements() const noexcept { return 0; }
    [[nodiscard]] constexpr std::int64_t workspace_elements() const noexcept { return 0; }

    template <backend B>
    void forward(B& on, const backend_frame<B>& f) const {
        core.projection().apply(on, f.batch * core.tokens(), f.input, f.parameters, f.output);
        on.add(f.batch * core.image(), f.skip, f.output);
    }
    template <backend B>
    void backward_input(B& on, const backend_frame<B>& f) const {
        on.copy(f.batch * core.image(), f.output_gradient, f.skip_gradient);
        if (f.input_gradient == nullptr) { return; }
        on.linear_backward_input(core.projection().matrix(), f.batch * core.tokens(), f.output_gradient, f.parameters,
                                 f.input_gradient, into::write);
    }
    template <backend B>
    void backward_weight(B& on, const backend_frame<B>& f) const {
        core.projection().apply_backward_weight(on, f.batch * core.tokens(), f.input, f.output_gradient,
                                                f.parameter_gradients);
    }
};

/// A whole transformer: norm (GroupNorm), proj_in, `depth` blocks, proj_out, and the identity path around all of them.
///
/// It saves and defers what its parts do, and the images between them with their gradients.
struct spatial_transformer {
    text_attention core{};
    int depth{1};
    bool linear_projection{true};

    [[nodiscard]] constexpr flaw defect() const noexcept { return depth <= 0 ? flaw::size : core.defect(); }
    [[nodiscard]] constexpr extent input() const noexcept { return core.shape(); }
    [[nodiscard]] constexpr extent skip_input() const noexcept { return {}; }
    [[nodiscard]] constexpr extent residual_input() const noexcept { return {}; }
    [[nodiscard]] constexpr extent output() const noexcept { return core.shape(); }
    [[nodiscard]] constexpr extent context() const noexcept { return core.context(); }
    [[nodiscard]] constexpr int conditioning_features() const noexcept { return 0; }

    template <class Description>
    constexpr void describe(Description& d, const label& name) const {
        d.within(name);
        core.describe_in(d, linear_projection);
        for (int i = 0; i != depth; ++i) {
            d.within(name + ".transformer_blocks." + static_cast<unsigned>(i));
            core.describe_block(d);
        }
        d.within(name);
        core.describe_out(d, linear_projection);
    }

    [[nodiscard]] constexpr transformer_in beginning() const noexcept { return {core, linear_projection}; }
    [[nodiscard]] constexpr transformer_block block() const noexcept { return {core}; }
    [[nodiscard]] constexpr transformer_out end() const noexcept { return {core, linear_projection}; }

    [[nodiscard]] constexpr std::int64_t saved_elements() const noexcept {
        return beginning().saved_elements() + depth * block().saved_elements() + (depth + 1) * core.image();
    }
    [[nodiscard]] constexpr std::int64_t statistics_elements() const noexcept {
        return beginning().statistics_elements() + depth * block().statistics_elements();
    }
    [[nodiscard]] constexpr std::int64_t deferred_elements() const noexcept {
        return depth * block().deferred_elements() + (depth + 1) * core.image();
    }
    [[nodiscard]] constexpr std::int64_t workspace_elements() const noexcept { return block().workspace_elements(); }

    template <backend B>
    void forward(B& on, const backend_frame<B>& f) const {
        beginning().forward(on, beginning_of<B>(f));
        for (int i = 0; i != depth; ++i) { block().forward(on, block_of<B>(f, i)); }
        end().forward(on, end_of<B>(f));
    }
    template <backend B>
    void backward_input(B& on, const backend_frame<B>& f) const {
        end().backward_input(on, end_of<B>(f));
        for (int i = depth; i-- != 0;) { block().backward_input(on, block_of<B>(f, i)); }
        beginning().backward_input(on, beginning_of<B>(f), into::add);
    }
    template <backend B>
    void backward_weight(B& on, const backend_frame<B>& f) const {
        end().backward_weight(on, end_of<B>(f));
        for (int i = depth; i-- != 0;) { block().backward_weight(on, block_of<B>(f, i)); }
        beginning().backward_weight(on, beginning_of<B>(f));
    }

private:
    // The frames of the parts. Saved: what the beginning saves, the depth + 1 images between the parts, what each block
    // saves. Deferred: the gradients of those images, what each block defers.

    /// Null stays null: forward has no gradients.
    template <class T>
    [[nodiscard]] static constexpr T* behind(T* begin, std::int64_t count) noexcept {
        return begin != nullptr ? begin + count : nullptr;
    }
    template <class B>
    [[nodiscard]] constexpr auto* image_of(const backend_frame<B>& f, int i) const noexcept {
        return f.saved + f.batch * (beginning().saved_elements() + i * core.image());
    }
    template <class B>
    [[nodiscard]] constexpr auto* gradient_of(const backend_frame<B>& f, int i) const noexcept {
        return behind(f.deferred, f.batch * (i * core.image()));
    }
    template <class B>
    [[nodiscard]] constexpr backend_frame<B> beginning_of(const backend_frame<B>& f) const noexcept {
        backend_frame<B> part = f;
        part.output = image_of<B>(f, 0);
        part.output_gradient = gradient_of<B>(f, 0);
        return part;
    }
    template <class B>
    [[nodiscard]] constexpr backend_frame<B> block_of(const backend_frame<B>& f, int i) const noexcept {
        const transformer_block b = block();
        const std::int64_t before = beginning().parameter_elements() + i * b.parameter_elements();
        const std::int64_t images = (depth + 1) * core.image();
        backend_frame<B> part = f;
        part.input = image_of<B>(f, i);
        part.output = image_of<B>(f, i + 1);
        part.parameters = f.parameters + before;
        part.saved = f.saved + f.batch * (beginning().saved_elements() + images + i * b.saved_elements());
        part.statistics = f.statistics + f.batch * (beginning().statistics_elements() + i * b.statistics_elements());
        part.output_gradient = gradient_of<B>(f, i + 1);
        part.input_gradient = gradient_of<B>(f, i);
        part.deferred = behind(f.deferred, f.batch * (images + i * b.deferred_elements()));
        part.parameter_gradients = behind(f.parameter_gradients, before);
        return part;
    }
    /// The identity path is the residual of the end, and its gradient the beginning of the input's.
    template <class B>
    [[nodiscard]] constexpr backend_frame<B> end_of(const backend_frame<B>& f) const noexcept {
        const std::int64_t before = beginning().parameter_elements() + depth * block().parameter_elements();
        backend_frame<B> part = f;
        part.input = image_of<B>(f, depth);
        part.skip = f.input;
        part.parameters = f.parameters + before;
        part.input_gradient = gradient_of<B>(f, depth);
        part.skip_gradient = f.input_gradient != nullptr ? f.input_gradient : f.workspace;
        part.parameter_gradients = behind(f.parameter_gradients, before);
        return part;
    }
};

} // namespace pulse::nn

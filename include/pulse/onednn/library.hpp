#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

#include <oneapi/dnnl/dnnl.h>

#include <pulse/core/error.hpp>
#include <pulse/core/owner.hpp>
#include <pulse/onednn/version.hpp>

namespace pulse::onednn {

/// Throws pulse::error naming the call when oneDNN refuses.
inline void check(dnnl_status_t status, const char* call) {
    if (status == dnnl_success) { return; }
    const char* reason = status == dnnl_out_of_memory       ? "out of memory"
                         : status == dnnl_invalid_arguments ? "invalid arguments"
                         : status == dnnl_unimplemented     ? "unimplemented"
                                                            : "failed";
    throw error{std::string{"pulse: oneDNN: "} + call + ": " + reason};
}

using onednn_tensor = owner<onednn_tensor_owned, destroy_tensor>;
using onednn_description = owner<dnnl_primitive_desc_t, dnnl_primitive_desc_destroy>;
using onednn_attributes = owner<dnnl_primitive_attr_t, dnnl_primitive_attr_destroy>;

/// Attributes with a scratchpad that the caller provides; `adds` makes the result add to its target.
[[nodiscard]] inline onednn_attributes make_attributes(bool adds) {
    onednn_attributes made;
    check(dnnl_primitive_attr_create(made.place()), "attributes");
    check(dnnl_primitive_attr_set_scratchpad_mode(made.get(), dnnl_scratchpad_mode_user), "scratchpad mode");
    if (adds) {
        owner<dnnl_post_ops_t, dnnl_post_ops_destroy> posts;
        check(dnnl_post_ops_create(posts.place()), "post operations");
        check(append_sum(posts.get()), "post operations");
        check(dnnl_primitive_attr_set_post_ops(made.get(), posts.get()), "post operations");
    }
    return made;
}

/// A tensor of floats; `layout` is a format tag (dnnl_format_tag_any leaves the layout to the primitive) or points at
/// strides in elements.
template <std::size_t Rank, class Layout>
[[nodiscard]] onednn_tensor describe(const std::array<dnnl_dim_t, Rank>& dims, Layout layout) {
    onednn_tensor made;
    check(create_tensor(made.place(), static_cast<int>(Rank), dims.data(), layout), "memory description");
    return made;
}

/// Floats that a tensor of this description occupies, padding of its layout included; none without a description.
[[nodiscard]] inline std::int64_t floats_of(onednn_tensor_view tensor) noexcept {
    if (tensor == nullptr) { return 0; }
    return static_cast<std::int64_t>((dnnl_memory_desc_get_size(tensor) + sizeof(float) - 1) / sizeof(float));
}

/// Engine and stream of one backend; both live as long as it does.
class onednn_engine {
public:
    onednn_engine() {
        check(dnnl_engine_create(engine_.place(), dnnl_cpu, 0), "engine");
        check(dnnl_stream_create(stream_.place(), get(), dnnl_stream_default_flags), "stream");
    }
    [[nodiscard]] dnnl_engine_t get() const noexcept { return engine_.get(); }
    [[nodiscard]] dnnl_stream_t stream() const noexcept { return stream_.get(); }

private:
    owner<dnnl_engine_t, dnnl_engine_destroy> engine_{};
    owner<dnnl_stream_t, dnnl_stream_destroy> stream_{};
};

/// A primitive with its argument list; data pointers are given with each run, nothing else changes.
class onednn_program {
public:
    static constexpr std::size_t most_arguments = 6;
    struct argument {
        int kind;
        onednn_tensor_view tensor; ///< null: the primitive has no such argument
    };

    onednn_program() = default;
    onednn_program(const onednn_engine& engine, const onednn_description& description,
                   std::initializer_list<argument> arguments, const char* call) :
        call_{call} {
        check(dnnl_primitive_create(primitive_.place(), description.get()), call);
        for (const argument& a : arguments) { append(engine, a); }
        const onednn_tensor_view pad = queried(description, dnnl_query_scratchpad_md);
        scratch_ = floats_of(pad);
        if (scratch_ != 0) { append(engine, {DNNL_ARG_SCRATCHPAD, pad}); }
    }

    /// Floats of scratch that `run` needs.
    [[nodiscard]] std::int64_t scratch() const noexcept { return scratch_; }

    /// Pointers in the order of the constructor's arguments; null for arguments that the primitive does not have.
    void run(const onednn_engine& engine, std::initializer_list<const float*> data, float* scratch) {
        std::size_t at = 0;
        for (const float* d : data) {
            if (d != nullptr) { set(at++, const_cast<float*>(d)); }
        }
        if (scratch_ != 0) { set(at, scratch); }
        check(dnnl_primitive_execute(primitive_.get(), engine.stream(), static_cast<int>(count_), arguments_.data()),
              call_);
    }

    /// A tensor that the primitive has chosen; it belongs to the description.
    [[nodiscard]] static onednn_tensor_view queried(const onednn_description& description, dnnl_query_t what) {
        return dnnl_primitive_desc_query_md(description.get(), what, 0);
    }

private:
    void append(const onednn_engine& engine, const argument& a) {
        if (a.tensor == nullptr) { return; }
        check(dnnl_memory_create(memories_[count_].place(), a.tensor, engine.get(), DNNL_MEMORY_NONE), call_);
        arguments_[count_] = dnnl_exec_arg_t{a.kind, memories_[count_].get()};
        ++count_;
    }
    void set(std::size_t at, float* data) {
        if (data == data_[at]) { return; }
        check(dnnl_memory_set_data_handle(memories_[at].get(), data), call_);
        data_[at] = data;
    }

    const char* call_{};
    owner<dnnl_primitive_t, dnnl_primitive_destroy> primitive_{};
    std::array<owner<dnnl_memory_t, dnnl_memory_destroy>, most_arguments> memories_{};
    std::array<dnnl_exec_arg_t, most_arguments> arguments_{};
    std::array<float*, most_arguments> data_{};
    std::size_t count_{};
    std::int64_t scratch_{};
};

} // namespace pulse::onednn

#pragma once

#include <cstdint>

#include <pulse/model/layer.hpp>
#include <pulse/plan/optimizer_form.hpp>
#include <pulse/plan/parameter_memory.hpp>

namespace pulse {

namespace detail {

template <class Model>
[[nodiscard]] constexpr std::int64_t conditioning_parameters_of() {
    if constexpr (Model::is_conditioned) {
        return parameter_elements<typename Model::conditioning>();
    } else {
        return 0;
    }
}

} // namespace detail

/// What a rank keeps for each parameter of a model (of both models of a cascade) that is trained on this backend:
/// values in its scalar type, the state of AdamW and of the weight average, the backend's update tables and its
/// scratch. Throws input_error as adamw_memory does.
template <class Model, class Backend>
[[nodiscard]] constexpr parameter_memory kept_by(bool sharded = false, const optimizer_form& form = {}) {
    parameter_memory kept = adamw_memory(static_cast<int>(sizeof(typename Backend::scalar)), form);
    kept.sharded = sharded;
    if constexpr (requires { Backend::tables; }) { kept.tables = Backend::tables; }
    if constexpr (requires { Backend::most_scratch; }) { kept.scratch = Backend::most_scratch; }
    if constexpr (requires { typename Model::second; }) {
        kept.conditioning_parameters = detail::conditioning_parameters_of<typename Model::first>();
        kept.second_conditioning_parameters = detail::conditioning_parameters_of<typename Model::second>();
    } else {
        kept.conditioning_parameters = detail::conditioning_parameters_of<Model>();
    }
    return kept;
}

} // namespace pulse

#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <pulse/core/fingerprint.hpp>
#include <pulse/launch/agree.hpp>
#include <pulse/launch/build.hpp>
#include <pulse/model/cascade.hpp>
#include <pulse/model/fingerprint.hpp>
#include <pulse/model/model.hpp>
#include <pulse/model/resize.hpp>
#include <pulse/plan/fingerprint.hpp>
#include <pulse/plan/optimizer_form.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/plan/planned.hpp>
#include <pulse/runtime/backend.hpp>

namespace pulse {

namespace detail {

/// Fingerprint of a type, including all its template arguments.
template <class T>
[[nodiscard]] std::string type_text() {
    return fingerprint{}.add(std::string_view{__PRETTY_FUNCTION__}).text();
}

/// Name and fingerprint of a model, or of both models of a cascade.
template <any_model Model>
[[nodiscard]] std::string model_text(const Model*) {
    return Model::name.str() + " " + fingerprint_of<Model>().add(type_text<Model>()).text();
}
template <class First, class Second>
[[nodiscard]] std::string model_text(const cascade<First, Second>*) {
    return model_text(static_cast<const First*>(nullptr)) + " + " + model_text(static_cast<const Second*>(nullptr));
}

} // namespace detail

/// What all ranks must share that train Model, or a cascade, on B by a plan: build, model, backend with its scalars,
/// and plan. For launch::agree, where ranks have no transport yet.
template <model_or_cascade Model, backend B>
[[nodiscard]] std::vector<launch::common_value> values_of_run(const plan& planned) {
    const std::string size = std::to_string(planned.pipeline_degree) + " x " + std::to_string(planned.data_degree) +
                             " ranks, " + std::to_string(planned.microbatches) + " microbatches of " +
                             std::to_string(planned.microbatch_size);
    return {{"build", launch::build_text()},
            {"model", detail::model_text(static_cast<const Model*>(nullptr))},
            {"backend", detail::type_text<B>()},
            {"plan", fingerprint_of(planned).text() + " (" + size + ")"}};
}

/// Throws input_error on every rank, naming the difference, the ranks and the values, unless all ranks of a transport
/// (or a control_plane) have the same build, model, backend and plan, and the same `more`. Collective; call it before
/// the first step.
template <model_or_cascade Model, backend B, launch::collectives T>
void require_same_run(T& among, const plan& planned, const std::vector<launch::common_value>& more = {}) {
    std::vector<launch::common_value> mine = values_of_run<Model, B>(planned);
    mine.insert(mine.end(), more.begin(), more.end());
    launch::agree(among, mine);
}

/// Also compares the plans of all extents of a run, and how it keeps parameters and optimizer state.
template <model_or_cascade Model, backend B, launch::collectives T>
void require_same_run(T& among, const planned& made, std::vector<launch::common_value> more = {}) {
    for (const planned_extent& other : made.others) {
        more.push_back({"plan at " + detail::text_of(other.extent), fingerprint_of(other.plan).text()});
    }
    const optimizer_form& form = made.kept.form;
    const auto number = [](auto value) { return std::to_string(static_cast<int>(value)); };
    more.push_back({"optimizer", "moments " + number(form.moments) + ", weights " + number(form.weights) +
                                     (form.averages ? ", averages" : "") + (made.kept.sharded ? ", shared" : "")});
    require_same_run<Model, B>(among, made.plan, more);
}

} // namespace pulse

#pragma once

#include <pulse/model/model.hpp>

namespace pulse::test {

/// Checks the parts of models that derive from fitting_model, which checks nothing; compilation stops at a broken rule.
template <class... M>
[[nodiscard]] consteval bool fits() {
    return (pulse::detail::explain_parts<typename M::layer_list, typename M::skip_list, typename M::conditioning>() &&
            ...);
}

} // namespace pulse::test

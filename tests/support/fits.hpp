#pragma once

#include <pulse/model/model.hpp>

namespace pulse::test {

/// Looks at the parts of models that derive from fitting_model, which does not; stops compilation where one breaks a
/// rule.
template <class... M>
[[nodiscard]] consteval bool fits() {
    return (pulse::detail::explain_parts<typename M::layer_list, typename M::skip_list, typename M::conditioning>() &&
            ...);
}

} // namespace pulse::test

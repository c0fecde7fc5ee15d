#pragma once

#include <cstdint>
#include <string>

#include <doctest/doctest.h>

#include <pulse/reference/layer_trial.hpp>
#include <pulse/runtime/layer_frame.hpp>

namespace pulse::test {

using reference::detail::guarded;
using reference::detail::slope;

/// A trial of a library layer; checks at its end that nothing was wrong.
template <class L>
struct layer_trial : reference::layer_trial<L> {
    static_assert(writes_gradients<L>);
    using reference::layer_trial<L>::layer_trial;
    layer_trial(layer_trial&&) = default;
    void check() { static_cast<void>(reference::layer_trial<L>::check()); }
    ~layer_trial() {
        for (const std::string& fault : this->faults) { FAIL_CHECK(fault); }
        CHECK(this->faults.empty());
    }
};

} // namespace pulse::test

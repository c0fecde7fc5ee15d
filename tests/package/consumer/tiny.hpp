#pragma once

#include <array>
#include <cstdint>

#include <pulse/model/graph_of.hpp>
#include <pulse/model/model.hpp>

namespace consumer {

template <pulse::label Name, class Input, class Output>
struct stretch {
    static constexpr pulse::label name = Name;
    using input = Input;
    using output = Output;
    static constexpr std::array<pulse::parameter, 1> parameters() {
        return {pulse::parameter{Name + ".weight", {2, 2}, 2}};
    }
    static constexpr double forward_flops() { return 8.0; }
    static constexpr std::int64_t saved_elements = 0, deferred_elements = 0, workspace_elements = 0;
};

struct join : stretch<"join", pulse::shape<4>, pulse::shape<2>> {
    using skip_input = pulse::shape<4>;
};

struct tiny : pulse::model<"tiny",
                           pulse::layers<stretch<"in", pulse::shape<2>, pulse::shape<4>>,
                                         stretch<"mid", pulse::shape<4>, pulse::shape<4>>, join>,
                           pulse::skips<pulse::skip<"in", "join">>> {};

} // namespace consumer

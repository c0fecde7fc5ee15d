#pragma once

#include <pulse/plan/planned.hpp>
#include <pulse/runtime/any_transport.hpp>

namespace pulse {

/// A rank of a run among the others.
class rank : public any_transport {
public:
    explicit rank(const any_transport& among) noexcept : any_transport{among} {}
};

/// Runs body(rank) on every rank of a plan that this process has, and returns when all are done. `ranks` says what they
/// are: ranks::threads, ranks::threads_on or ranks::mpi.
///
/// An error of any rank ends all ranks and is thrown here.
template <class Ranks, class Body>
void run(const planned& made, const Ranks& ranks, const Body& body) {
    ranks.run(made.plan.pipeline_degree * made.plan.data_degree, [&](const any_transport& among) {
        rank self{among};
        body(self);
    });
}

} // namespace pulse

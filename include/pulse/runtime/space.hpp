#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include <pulse/runtime/weight_order.hpp>
#include <pulse/tensor/aligned_bytes.hpp>

namespace pulse {

/// The steady clock of the host, for a trace of passes that are done when they return.
class host_clock {
public:
    using mark = std::int64_t;

    /// Room for that many marks is taken here, so that now() allocates nothing.
    template <class B>
    host_clock(B&, std::size_t) noexcept {}

    [[nodiscard]] mark now() noexcept {
        return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
            .count();
    }
    /// Nanoseconds of the steady clock at which the mark was reached.
    [[nodiscard]] std::int64_t nanoseconds(mark m) const noexcept { return m; }
};

namespace detail {

/// Runs the work of an instruction by doing it.
class plain_sections {
public:
    template <class B, class Program>
    plain_sections(B&, const Program&) noexcept {}

    /// `addresses(visit)` calls visit(pointer) for every tensor that `work` is given and that may move between steps.
    template <class Addresses, class Work>
    void run(std::size_t, Addresses&&, Work&& work) {
        work();
    }
};

/// Adds what replicas have in host memory.
template <class T>
struct plain_adder {
    template <class B, class Transport>
    plain_adder(B&, const Transport&) noexcept {}

    /// What follows is behind all work of the backend so far.
    void follow() const noexcept {}
    /// y += x over n elements.
    void add(std::int64_t n, const T* x, T* y) const noexcept {
        for (std::int64_t i = 0; i != n; ++i) { y[i] += x[i]; }
    }
    /// The backend's work from now on is behind all that was added.
    void lead() const noexcept {}
    /// Now, where sums are made, by a clock of the space.
    template <class Clock>
    [[nodiscard]] typename Clock::mark now(Clock& clock) const {
        return clock.now();
    }
};

} // namespace detail

/// Memory and execution on the host: tensors are host memory, operations are done when they return.
struct host_space {
    /// In which order its backends take the weights of convolutions, and give their gradients.
    static constexpr weight_order weights = weight_order::checkpoint;

    /// Values that begin as 0.
    template <class T>
    using array = std::vector<T>;

    /// Memory for a step, not initialised, that begins at a multiple of memory_alignment.
    class bytes {
    public:
        explicit bytes(std::size_t size) : memory_{allocate_aligned(size)} {}
        [[nodiscard]] std::byte* data() const noexcept { return memory_.get(); }

    private:
        aligned_bytes memory_;
    };
    using clock = host_clock;
    using sections = detail::plain_sections;
    /// Adds gradients of replicas beside the work of a backend; made of the backend and the transport.
    template <class T>
    using adder = detail::plain_adder<T>;

    /// Copies bytes within this space, in the order of the backend's operations.
    template <class B>
    static void copy(const B&, const std::byte* from, std::byte* to, std::int64_t bytes) {
        std::copy_n(from, bytes, to);
    }
    /// Copies host memory into this space, and back; done on return.
    template <class T>
    static void upload(std::span<const T> from, T* to) {
        std::copy(from.begin(), from.end(), to);
    }
    template <class T>
    static void download(const T* from, std::span<T> to) {
        std::copy(from, from + to.size(), to.begin());
    }
};

namespace detail {

template <class B>
struct named_space {
    using type = host_space;
};
template <class B>
    requires requires { typename B::space; }
struct named_space<B> {
    using type = typename B::space;
};

} // namespace detail

/// Where the tensors of backend B are and how its operations run: B::space, with the members of host_space; host_space
/// for a backend that names none.
///
/// What host code may not touch there is reached by upload and download alone. Its sections may run the work of an
/// instruction in another way than by calling it again (as a captured graph), and its clock may tell when the device
/// reached a point, not when the host did.
template <class B>
using space_of = typename detail::named_space<B>::type;

} // namespace pulse

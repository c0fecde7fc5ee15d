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

/// The host's steady clock, for tracing passes that are complete when they return.
class host_clock {
public:
    using mark = std::int64_t;

    /// Clocks allocate memory for that many marks here, so that now() allocates nothing.
    template <class B>
    host_clock(B&, std::size_t) noexcept {}

    [[nodiscard]] mark now() noexcept {
        return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
            .count();
    }
    /// The steady clock's nanoseconds when the mark was reached.
    [[nodiscard]] std::int64_t nanoseconds(mark m) const noexcept { return m; }
};

namespace detail {

/// Runs the work of an instruction by calling it.
class plain_sections {
public:
    template <class B, class Program>
    plain_sections(B&, const Program&) noexcept {}

    /// `addresses(visit)` calls visit(pointer) for every tensor that `work` uses and that may move between steps.
    template <class Addresses, class Work>
    void run(std::size_t, Addresses&&, Work&& work) {
        work();
    }
};

/// Adds values of replicas in host memory.
template <class T>
struct plain_adder {
    template <class B, class Transport>
    plain_adder(B&, const Transport&) noexcept {}

    /// Orders later additions after all work of the backend so far.
    void follow() const noexcept {}
    /// y += x over n elements.
    void add(std::int64_t n, const T* x, T* y) const noexcept {
        for (std::int64_t i = 0; i != n; ++i) { y[i] += x[i]; }
    }
    /// Orders later work of the backend after all additions so far.
    void lead() const noexcept {}
    /// The current time on a clock of the space, where the sums are computed.
    template <class Clock>
    [[nodiscard]] typename Clock::mark now(Clock& clock) const {
        return clock.now();
    }
};

} // namespace detail

/// Memory and execution on the host: tensors are in host memory, operations are complete when they return.
struct host_space {
    /// The order in which its backends take convolution weights and return their gradients.
    static constexpr weight_order weights = weight_order::checkpoint;

    /// Zero-initialised values.
    template <class T>
    using array = std::vector<T>;

    /// Uninitialised memory for a step, aligned to memory_alignment.
    class bytes {
    public:
        explicit bytes(std::size_t size) : memory_{allocate_aligned(size)} {}
        [[nodiscard]] std::byte* data() const noexcept { return memory_.get(); }

    private:
        aligned_bytes memory_;
    };
    using clock = host_clock;
    using sections = detail::plain_sections;
    /// Adds replicas' gradients beside a backend's work; constructed from the backend and the transport.
    template <class T>
    using adder = detail::plain_adder<T>;

    /// Copies bytes within this space, ordered with the backend's operations.
    template <class B>
    static void copy(const B&, const std::byte* from, std::byte* to, std::int64_t bytes) {
        std::copy_n(from, bytes, to);
    }
    /// Copies host memory into this space, or back; complete on return.
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

/// Where backend B's tensors are and how its operations run: B::space, with the members of host_space, or host_space if
/// a backend names none.
///
/// Host code reaches memory that it may not touch only through upload and download. The space's sections may repeat an
/// instruction's work without calling it (as a captured graph), and its clock may report when the device reached a
/// point, not when the host did.
template <class B>
using space_of = typename detail::named_space<B>::type;

} // namespace pulse

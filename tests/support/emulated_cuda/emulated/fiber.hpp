#pragma once

#include <cstddef>

namespace emulated_cuda {

/// A stack of its own on which a function runs until it is left for the scheduler, and goes on where it left.
class fiber {
public:
    fiber();
    fiber(const fiber&) = delete;
    fiber& operator=(const fiber&) = delete;
    ~fiber();

    /// Runs on this stack from the scheduler's: calls `body(argument)` anew, or goes on where the fiber was left.
    void enter(void (*body)(void*), void* argument);
    /// Back to the scheduler; returns when the fiber is entered again.
    void leave();

private:
    static void start(fiber* self);
    void loop();

    std::byte* stack_{};
    void* own_stack_pointer_{};
    void* scheduler_stack_pointer_{};
    void (*body_)(void*){};
    void* argument_{};
    // of AddressSanitizer
    void* own_fake_stack_{};
    void* scheduler_fake_stack_{};
    const void* scheduler_bottom_{};
    std::size_t scheduler_size_{};
};

} // namespace emulated_cuda

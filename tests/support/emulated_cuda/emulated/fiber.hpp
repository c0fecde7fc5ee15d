#pragma once

#include <cstddef>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace emulated_cuda {

/// A separate stack on which a function runs until it returns control to the scheduler, and later resumes where it
/// left.
class fiber {
public:
    fiber();
    fiber(const fiber&) = delete;
    fiber& operator=(const fiber&) = delete;
    ~fiber();

    /// Switches from the scheduler's stack to this one: starts `body(argument)`, or resumes where the fiber left.
    [[gnu::always_inline]] void enter(void (*body)(void*), void* argument) {
        body_ = body;
        argument_ = argument;
#if defined(__SANITIZE_ADDRESS__)
        __sanitizer_start_switch_fiber(&scheduler_fake_stack_, stack_, stack_bytes);
#endif
        switch_stacks(&scheduler_stack_pointer_, own_stack_pointer_);
#if defined(__SANITIZE_ADDRESS__)
        __sanitizer_finish_switch_fiber(scheduler_fake_stack_, nullptr, nullptr);
#endif
    }

    /// Switches back to the scheduler; returns when the fiber is entered again.
    [[gnu::always_inline]] void leave() {
#if defined(__SANITIZE_ADDRESS__)
        __sanitizer_start_switch_fiber(&own_fake_stack_, scheduler_bottom_, scheduler_size_);
#endif
        switch_stacks(&own_stack_pointer_, scheduler_stack_pointer_);
#if defined(__SANITIZE_ADDRESS__)
        __sanitizer_finish_switch_fiber(own_fake_stack_, &scheduler_bottom_, &scheduler_size_);
#endif
    }

private:
#if defined(__SANITIZE_ADDRESS__)
    static constexpr std::size_t stack_bytes = std::size_t{512} << 10; // frames are larger
#else
    static constexpr std::size_t stack_bytes = std::size_t{128} << 10;
#endif

    static void start(fiber* self);
    void loop();

    /// Saves one stack's state and resumes another. Inlined, and by a jump: the processor predicts that a return goes
    /// back to the last call, and a return onto another stack would put its predictions out of step.
    [[gnu::always_inline]] static void switch_stacks(void** from, void* to) {
#if defined(__x86_64__)
        asm volatile("leaq -128(%%rsp), %%rsp\n\t" // what a function may keep below its stack
                     "pushq %%rbp\n\t"
                     "leaq 1f(%%rip), %%rax\n\t"
                     "pushq %%rax\n\t"
                     "movq %%rsp, (%0)\n\t"
                     "movq %1, %%rsp\n\t"
                     "popq %%rax\n\t"
                     "jmpq *%%rax\n"
                     "1:\n\t"
                     "popq %%rbp\n\t"
                     "leaq 128(%%rsp), %%rsp"
                     : "+D"(from), "+S"(to)
                     :
                     : "rax", "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "xmm0", "xmm1",
                       "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12",
                       "xmm13", "xmm14", "xmm15",
#if defined(__AVX512F__)
                       "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25",
                       "xmm26", "xmm27", "xmm28", "xmm29", "xmm30", "xmm31", "k0", "k1", "k2", "k3", "k4", "k5", "k6",
                       "k7",
#endif
                       "cc", "memory");
#else
        swapcontext(static_cast<ucontext_t*>(*from), static_cast<ucontext_t*>(to));
#endif
    }

    std::byte* stack_{};
    void* own_stack_pointer_{};
    void* scheduler_stack_pointer_{};
    void (*body_)(void*){};
    void* argument_{};
    // for AddressSanitizer
    void* own_fake_stack_{};
    void* scheduler_fake_stack_{};
    const void* scheduler_bottom_{};
    std::size_t scheduler_size_{};
};

} // namespace emulated_cuda

#include <emulated/fiber.hpp>

#include <cstdint>
#include <new>

#include <sys/mman.h>
#include <unistd.h>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr std::size_t stack_bytes = std::size_t{512} << 10; // frames are wider
#else
constexpr std::size_t stack_bytes = std::size_t{128} << 10;
#endif

} // namespace

#if defined(__x86_64__)
// Stores the registers that a call keeps on the stack of `*from`, and takes them up from `to`.
extern "C" void emulated_cuda_switch(void** from, void* to);
asm(R"(
.text
.globl emulated_cuda_switch
.type emulated_cuda_switch,@function
emulated_cuda_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size emulated_cuda_switch,.-emulated_cuda_switch

.type emulated_cuda_begin,@function
emulated_cuda_begin:
    movq %rbx, %rdi
    callq *%rbp
    ud2
.size emulated_cuda_begin,.-emulated_cuda_begin
)");
extern "C" void emulated_cuda_begin();
asm(".globl emulated_cuda_begin");
#endif

namespace emulated_cuda {

fiber::fiber() {
    void* memory =
        mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) { throw std::bad_alloc(); }
    stack_ = static_cast<std::byte*>(memory);
    // an overrun of the stack is caught, not written into the neighbour's
    mprotect(memory, static_cast<std::size_t>(sysconf(_SC_PAGESIZE)), PROT_NONE);
#if defined(__x86_64__)
    auto* top = reinterpret_cast<std::uint64_t*>(stack_ + stack_bytes);
    top -= 2; // the callee finds its stack aligned
    *--top = reinterpret_cast<std::uint64_t>(&emulated_cuda_begin);
    *--top = reinterpret_cast<std::uint64_t>(&fiber::start); // rbp
    *--top = reinterpret_cast<std::uint64_t>(this);          // rbx
    top -= 4;
    own_stack_pointer_ = top;
#else
    auto* own = new ucontext_t;
    auto* scheduler = new ucontext_t;
    getcontext(own);
    own->uc_stack.ss_sp = stack_;
    own->uc_stack.ss_size = stack_bytes;
    const auto address = reinterpret_cast<std::uintptr_t>(this);
    makecontext(own, reinterpret_cast<void (*)()>(+[](unsigned high, unsigned low) {
                    fiber::start(reinterpret_cast<fiber*>(std::uintptr_t{high} << 16 << 16 | low));
                }),
                2, static_cast<unsigned>(std::uint64_t{address} >> 32), static_cast<unsigned>(address));
    own_stack_pointer_ = own;
    scheduler_stack_pointer_ = scheduler;
#endif
}

fiber::~fiber() {
    munmap(stack_, stack_bytes);
#if !defined(__x86_64__)
    delete static_cast<ucontext_t*>(own_stack_pointer_);
    delete static_cast<ucontext_t*>(scheduler_stack_pointer_);
#endif
}

void fiber::enter(void (*body)(void*), void* argument) {
    body_ = body;
    argument_ = argument;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&scheduler_fake_stack_, stack_, stack_bytes);
#endif
#if defined(__x86_64__)
    emulated_cuda_switch(&scheduler_stack_pointer_, own_stack_pointer_);
#else
    swapcontext(static_cast<ucontext_t*>(scheduler_stack_pointer_), static_cast<ucontext_t*>(own_stack_pointer_));
#endif
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(scheduler_fake_stack_, nullptr, nullptr);
#endif
}

void fiber::leave() {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&own_fake_stack_, scheduler_bottom_, scheduler_size_);
#endif
#if defined(__x86_64__)
    emulated_cuda_switch(&own_stack_pointer_, scheduler_stack_pointer_);
#else
    swapcontext(static_cast<ucontext_t*>(own_stack_pointer_), static_cast<ucontext_t*>(scheduler_stack_pointer_));
#endif
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(own_fake_stack_, &scheduler_bottom_, &scheduler_size_);
#endif
}

void fiber::start(fiber* self) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(nullptr, &self->scheduler_bottom_, &self->scheduler_size_);
#endif
    self->loop();
}

// A fiber never ends: the next body runs on the same stack.
void fiber::loop() {
    for (;;) {
        body_(argument_);
        leave();
    }
}

} // namespace emulated_cuda

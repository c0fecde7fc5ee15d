#include <emulated/fiber.hpp>

#include <cstdint>
#include <new>

#include <sys/mman.h>
#include <unistd.h>

#if defined(__x86_64__)
// Entry point of a fiber: the function to call and its argument are on the fiber's stack.
asm(R"(
.text
.globl emulated_cuda_begin
.type emulated_cuda_begin,@function
emulated_cuda_begin:
    popq %rdi
    popq %rax
    callq *%rax
    ud2
.size emulated_cuda_begin,.-emulated_cuda_begin
)");
extern "C" void emulated_cuda_begin();
#endif

namespace emulated_cuda {

fiber::fiber() {
    void* memory =
        mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) { throw std::bad_alloc(); }
    stack_ = static_cast<std::byte*>(memory);
    // catch a stack overflow instead of writing into the neighbour's memory
    mprotect(memory, static_cast<std::size_t>(sysconf(_SC_PAGESIZE)), PROT_NONE);
#if defined(__x86_64__)
    auto* top = reinterpret_cast<std::uint64_t*>(stack_ + stack_bytes);
    top -= 2; // the callee expects an aligned stack
    *--top = reinterpret_cast<std::uint64_t>(&fiber::start);
    *--top = reinterpret_cast<std::uint64_t>(this);
    *--top = reinterpret_cast<std::uint64_t>(&emulated_cuda_begin);
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

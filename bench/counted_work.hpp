#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cxxabi.h>
#include <dlfcn.h>

#include <cuda_runtime.h>

#include <emulated/runtime.hpp>

#include "ledger.hpp"

namespace pulse_bench {

/// What an operation reads or writes.
struct operand {
    const void* at{};
    double bytes{};
    int least{1};  ///< how often the operation has to move it
    int passes{1}; ///< how often a kernel that is given its address does
};

/// What is being asked of the backend, and whose kernels are therefore met.
struct counted_operation {
    work_kind kind{};
    std::vector<operand> operands{};
    double flops{};          ///< of an attention
    bool owns_allocations{}; ///< kernels read and write the whole of what begins at an address that is no operand's

    [[nodiscard]] double least_bytes() const {
        double sum = 0;
        for (const operand& o : operands) { sum += o.at == nullptr ? 0 : o.least * o.bytes; }
        return sum;
    }
};

/// Rates of attention's products against those of large ones, in cuDNN and in pulse's own kernels: assumptions.
inline constexpr double library_attention_rate = 0.6;
inline constexpr double own_attention_rate = 0.4;

/// Enters in a ledger what an emulated device is given to do (emulated_cuda::counted_device).
///
/// Kernels and library calls are those of pulse itself. Library calls know what they move and multiply. A kernel of
/// pulse moves what it is given: every operand of the operation at hand whose address is among its arguments, on its
/// own or within a structure, as often as the operand says; scratch, which is small, is not counted.
class work_counter {
public:
    explicit work_counter(const card& on) : book_{on} {}

    /// While one lives, work is of its operation.
    class scope {
    public:
        scope(work_counter& counter, counted_operation now) :
            counter_{counter}, now_{std::move(now)}, outer_{std::exchange(counter.now_, &now_)} {}
        scope(const scope&) = delete;
        scope& operator=(const scope&) = delete;
        ~scope() { counter_.now_ = outer_; }

    private:
        work_counter& counter_;
        counted_operation now_;
        const counted_operation* outer_;
    };

    [[nodiscard]] std::function<void()> note(const emulated_cuda::work& what) {
        return [this, made = entry_of(what)] {
            if (counts_) { book_.put(party::pulse, made.kind, made.kernels, made.bytes, made.flops, made.rate_share); }
        };
    }
    /// Calls `enter(book)` when the stream comes to it, in every replay again, where work is counted.
    void enter_with(cudaStream_t stream, std::function<void(ledger&)> enter) {
        entries_.push_back([this, enter = std::move(enter)] {
            if (counts_) { enter(book_); }
        });
        static_cast<void>(cudaLaunchHostFunc(
            stream, [](void* data) { (*static_cast<std::function<void()>*>(data))(); }, &entries_.back()));
    }
    void start() { counts_ = true; }
    [[nodiscard]] const ledger& book() const { return book_; }
    ledger& book() { return book_; }

private:
    struct entry {
        work_kind kind{work_kind::other};
        double kernels{1};
        double bytes{};
        double flops{};
        double rate_share{1};
    };

    [[nodiscard]] static std::string name_of(const void* kernel) {
        Dl_info found{};
        if (kernel == nullptr || dladdr(kernel, &found) == 0 || found.dli_sname == nullptr) { return {}; }
        int status = 0;
        const std::unique_ptr<char, void (*)(void*)> text{
            abi::__cxa_demangle(found.dli_sname, nullptr, nullptr, &status), std::free};
        return status == 0 ? text.get() : found.dli_sname;
    }
    /// Of operands, and of whole allocations where they are the operation's.
    [[nodiscard]] double bytes_given(std::span<const std::byte> arguments) const {
        std::set<std::uintptr_t> given;
        for (std::size_t i = 0; i + sizeof(std::uintptr_t) <= arguments.size(); i += sizeof(std::uintptr_t)) {
            std::uintptr_t word = 0;
            std::memcpy(&word, arguments.data() + i, sizeof word);
            given.insert(word);
        }
        double sum = 0;
        for (const operand& o : now_->operands) {
            if (given.contains(reinterpret_cast<std::uintptr_t>(o.at)) && o.at != nullptr) {
                sum += o.passes * o.bytes;
            }
        }
        for (const std::uintptr_t word : given) {
            const auto* const address = reinterpret_cast<const void*>(word); // NOLINT: it is compared, not followed
            const bool is_operand =
                std::ranges::any_of(now_->operands, [&](const operand& o) { return o.at == address; });
            if (!now_->owns_allocations || is_operand) { continue; }
            sum += 2 * static_cast<double>(emulated_cuda::allocated_bytes(address));
        }
        return sum;
    }
    [[nodiscard]] entry entry_of(const emulated_cuda::work& what) const {
        entry made{.bytes = static_cast<double>(what.bytes), .flops = static_cast<double>(what.flops)};
        if (what.call == "copy" || what.call == "fill") {
            made.kind = what.call == "copy" ? work_kind::copies : work_kind::fills;
            return made;
        }
        if (now_ == nullptr) { return made; }
        made.kind = now_->kind;
        const std::string name = name_of(what.kernel);
        if (what.call == "attention") {
            made.flops = now_->flops;
            made.rate_share = library_attention_rate;
        } else if (what.kernel != nullptr) {
            enter_kernel(name, what.arguments, made);
        }
        // A kernel may sum sums, from scratch to scratch.
        if (made.bytes == 0 && name.find("column_sums_kernel<float") == std::string::npos) {
            throw std::logic_error{"the bytes of a kernel cannot be counted, as it is given none of its operation's: " +
                                   name};
        }
        return made;
    }
    void enter_kernel(const std::string& name, std::span<const std::byte> arguments, entry& made) const {
        const auto is = [&](std::string_view part) { return name.find(part) != std::string::npos; };
        if (name.empty() && made.kind != work_kind::loss) {
            throw std::runtime_error{"a kernel has no name: the program has to export its symbols"};
        }
        made.bytes = bytes_given(arguments);
        if (is("reorder_weight")) {
            made.kind = work_kind::weight_reordering;
            // Packed weights lie in memory of the backend's: a copy of what is read, or, in half as many bytes, of what
            // is added to a gradient that is read and written.
            made.bytes *= is("float, true") ? 1.25 : 2;
        } else if (made.kind == work_kind::convolution_wgrad || made.kind == work_kind::product_wgrad) {
            made.kind = work_kind::column_sums;
        } else if (made.kind == work_kind::convolution_forward || made.kind == work_kind::product_forward) {
            made.kind = work_kind::pointwise; // a bias that the library does not add
        } else if (made.kind == work_kind::optimizer && (is("squares") || is("sum_parts"))) {
            made.kind = work_kind::gradient_norm;
            made.bytes /= 2; // it reads what the update reads and writes
        } else if (is("attention_")) {
            // In units of the two products of a forward pass: either backward kernel makes the weights and their
            // gradients again.
            const double share = is("forward") ? 1 : is("backward_queries") ? 0.6 : is("backward_keys") ? 0.8 : 0;
            made.flops = share * now_->flops;
            made.rate_share = own_attention_rate;
        }
    }

    ledger book_;
    bool counts_{};
    const counted_operation* now_{};
    std::deque<std::function<void()>> entries_{};
};

} // namespace pulse_bench

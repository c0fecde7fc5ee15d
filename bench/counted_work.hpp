#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
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

#include <pulse/cuda/error.cuh>

#include "ledger.hpp"

namespace pulse_bench {

/// How an operand is used, for kernels that do not move all of their arguments.
enum class role : std::uint8_t { read, written, of_keys }; ///< of_keys: written, a gradient of keys or values

/// What an operation reads or writes.
struct operand {
    const void* at{};
    double bytes{};
    int least{1};  ///< how often the operation must move it
    int passes{1}; ///< how often a kernel that gets its address moves it
    role is{role::read};
    bool seen{}; ///< a kernel got its address
};

/// Kernels and bytes.
struct taken {
    double kernels{};
    double bytes{};
};

/// The operation that runs on the backend, to which the kernels seen meanwhile belong.
struct counted_operation {
    work_kind kind{};
    std::vector<operand> operands{};
    double flops{};     ///< of an attention
    taken by_library{}; ///< an attention's backward pass in cuDNN, which starts several kernels per call
    std::vector<product_shape> products{}; ///< in the order in which the library is asked for them
    std::size_t asked{};                   ///< how many of them so far
    bool is_by_library{};                  ///< a library call or a copy, whose operands are unknown, was part of it
    bool owns_allocations{};               ///< kernels read and write in full each given allocation that is no operand

    [[nodiscard]] double least_bytes() const {
        double sum = 0;
        for (const operand& o : operands) { sum += o.at == nullptr ? 0 : o.least * o.bytes; }
        return sum;
    }
};

/// Assumed rates of attention's products relative to large products, in cuDNN and in pulse's own kernels.
inline constexpr double library_attention_rate = 0.6;
inline constexpr double own_attention_rate = 0.4;

/// A kernel that multiplies, or does not move all of its operands.
struct known_kernel {
    std::string_view part; ///< of its name
    bool reads{};
    bool writes{};
    bool writes_of_keys{};
    double products{}; ///< share of its operation's products

    [[nodiscard]] bool moves(role what) const {
        return what == role::read ? reads : what == role::written ? writes : writes_of_keys;
    }
    [[nodiscard]] bool moves_scratch_alone() const { return !reads && !writes && !writes_of_keys; }
};
/// An attention's backward pass has five products: the queries' kernel computes three and the keys' kernel four, as
/// both compute the weights and their gradients. Where queries are cut into parts, attention_join_parts writes what is
/// charged to the keys' kernel.
inline constexpr std::array<known_kernel, 8> known_kernels{{{"group_norm_gradient_sums_kernel", true},
                                                            {"layer_norm_affine_kernel", true},
                                                            {"attention_delta", true},
                                                            {"attention_join_parts"},
                                                            {"attention_weights_kernel"},
                                                            {"backward_queries", true, true, false, 0.6},
                                                            {"backward_keys", true, false, true, 0.8},
                                                            {"_forward", true, true, true, 1}}};

/// Enters the work of an emulated device in a ledger (emulated_cuda::counted_device).
///
/// Kernels and library calls are those of pulse itself. Library calls report what they move and multiply. Except for
/// known_kernels, a kernel of pulse moves every operand of the current operation whose address is among its arguments,
/// alone or inside a structure, as often as the operand says. Scratch is small and not counted.
class work_counter {
public:
    explicit work_counter(const card& on) : book_{on} {}

    /// While it lives, work counts for its operation.
    class scope {
    public:
        scope(work_counter& counter, counted_operation now) :
            counter_{counter}, now_{std::move(now)}, outer_{std::exchange(counter.now_, &now_)} {}
        scope(const scope&) = delete;
        scope& operator=(const scope&) = delete;
        ~scope() {
            counter_.now_ = outer_;
            const auto is_missed = [](const operand& o) { return o.at != nullptr && o.bytes != 0 && !o.seen; };
            if (!now_.is_by_library && std::ranges::any_of(now_.operands, is_missed)) {
                counter_.refuse("an operand of " + std::string{name_of(now_.kind)} + " is given to no kernel");
            }
        }

    private:
        work_counter& counter_;
        counted_operation now_;
        counted_operation* outer_;
    };

    [[nodiscard]] std::function<void()> note(const emulated_cuda::work& what) {
        return [this, made = entry_of(what)] {
            if (!counts_) { return; }
            calls_ += made.name.empty() ? 1 : 0;
            if (!made.kind) { return refuse("no operation has asked for " + made.name); }
            const work_amount amount =
                book_.put(party::pulse, *made.kind, made.kernels, made.bytes, made.flops, made.rate_share);
            if (made.product) { book_.put_product(*made.product, amount); }
        };
    }
    /// Calls `enter(book)` when the stream reaches it, also in every replay, while work is counted.
    void enter_with(cudaStream_t stream, std::function<void(ledger&)> enter) {
        entries_.push_back([this, enter = std::move(enter)] {
            if (counts_) { enter(book_); }
        });
        pulse::cuda::check(
            cudaLaunchHostFunc(
                stream, [](void* data) { (*static_cast<std::function<void()>*>(data))(); }, &entries_.back()),
            "cudaLaunchHostFunc");
    }
    void start() { counts_ = true; }
    /// Number of the runtime's copies and fills.
    [[nodiscard]] std::int64_t runtime_calls() const { return calls_; }
    ledger& book() { return book_; }
    /// Throws std::logic_error if some work could not be entered.
    [[nodiscard]] const ledger& finished() const {
        if (!wrong_.empty()) { throw std::logic_error{wrong_}; }
        return book_;
    }

private:
    struct entry {
        std::optional<work_kind> kind{};
        std::string name{};
        double kernels{1};
        double bytes{};
        double flops{};
        double rate_share{1};
        std::optional<product_shape> product{};
    };

    [[nodiscard]] static std::string_view name_of(work_kind kind) { return work_kinds[static_cast<std::size_t>(kind)]; }
    [[nodiscard]] static std::string name_of(const void* kernel) {
        Dl_info found{};
        if (dladdr(kernel, &found) == 0 || found.dli_sname == nullptr) { return "a kernel without a name"; }
        int status = 0;
        const std::unique_ptr<char, void (*)(void*)> text{
            abi::__cxa_demangle(found.dli_sname, nullptr, nullptr, &status), std::free};
        return status == 0 ? text.get() : found.dli_sname;
    }
    /// Bytes of the operands among a kernel's arguments, and of whole allocations if the operation owns them.
    [[nodiscard]] double bytes_given(std::span<const std::byte> arguments, const known_kernel* known) {
        std::set<std::uintptr_t> given;
        for (std::size_t i = 0; i + sizeof(std::uintptr_t) <= arguments.size(); i += sizeof(std::uintptr_t)) {
            std::uintptr_t word = 0;
            std::memcpy(&word, arguments.data() + i, sizeof word);
            given.insert(word);
        }
        double sum = 0;
        for (operand& o : now_->operands) {
            if (o.at == nullptr || !given.contains(reinterpret_cast<std::uintptr_t>(o.at))) { continue; }
            if (known != nullptr && !known->moves(o.is)) { continue; }
            // A bias that the library does not add is added to its output, which is read and written.
            const bool adds = now_->kind == work_kind::convolution_forward || now_->kind == work_kind::product_forward;
            sum += (adds && o.is == role::written ? 2 : o.passes) * o.bytes;
            o.seen = true;
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
    [[nodiscard]] entry entry_of(const emulated_cuda::work& what) {
        entry made{.bytes = static_cast<double>(what.bytes), .flops = static_cast<double>(what.flops)};
        if (now_ != nullptr && what.kernel == nullptr) { now_->is_by_library = true; }
        if (what.call == "copy" || what.call == "fill") {
            made.kind = what.call == "copy" ? work_kind::copies : work_kind::fills;
            return made;
        }
        made.name = what.kernel == nullptr ? std::string{what.call} : name_of(what.kernel);
        if (now_ == nullptr) { return made; }
        made.kind = now_->kind;
        if (what.kernel != nullptr) {
            enter_kernel(what.arguments, made);
        } else if (what.call == "product") {
            made.product = next_product(made.flops);
        } else if (what.call == "attention") {
            made.flops = now_->flops;
            made.rate_share = library_attention_rate;
            if (now_->by_library.kernels != 0) {
                made.kernels = now_->by_library.kernels;
                made.bytes = now_->by_library.bytes;
            }
        }
        return made;
    }
    [[nodiscard]] product_shape next_product(double flops) {
        if (now_->asked == now_->products.size() || now_->products[now_->asked].flops() != flops) {
            throw std::logic_error{"a product does not have the shape of " + std::string{name_of(now_->kind)}};
        }
        return now_->products[now_->asked++];
    }
    void enter_kernel(std::span<const std::byte> arguments, entry& made) {
        const auto is = [&](std::string_view part) { return made.name.find(part) != std::string::npos; };
        if (is("without a name") && made.kind != work_kind::loss) {
            throw std::runtime_error{"a kernel has no name: the program must export its symbols"};
        }
        const auto* const found = std::ranges::find_if(known_kernels, [&](const auto& k) { return is(k.part); });
        const known_kernel* const known = found == known_kernels.end() ? nullptr : found;
        const bool attends = made.kind == work_kind::attention_forward || made.kind == work_kind::attention_backward;
        if (attends && known == nullptr) {
            throw std::logic_error{"unknown attention kernel, whose work cannot be counted: " + made.name};
        }
        made.bytes = bytes_given(arguments, known);
        if (attends) {
            made.flops = known->products * now_->flops;
            made.rate_share = own_attention_rate;
        } else if (made.kind == work_kind::convolution_wgrad && is("gradient_rows<")) {
            // also reads the library's gradient, half as many bytes as the float gradient that it writes or adds to
            made.bytes *= is(", true>") ? 1.25 : 1.5;
        } else if (made.kind == work_kind::convolution_wgrad || made.kind == work_kind::product_wgrad) {
            made.kind = work_kind::column_sums;
        } else if (made.kind == work_kind::convolution_forward || made.kind == work_kind::product_forward) {
            made.kind = work_kind::pointwise; // the bias
        } else if (made.kind == work_kind::optimizer && (is("squares") || is("sum_parts"))) {
            made.kind = work_kind::gradient_norm;
        }
        // Some kernels only move scratch, such as sums of sums.
        const bool may_be_none = is("column_sums_kernel<float") || (known != nullptr && known->moves_scratch_alone());
        if (made.bytes == 0 && !may_be_none) {
            throw std::logic_error{
                "the bytes of a kernel cannot be counted, because it gets none of its operation's: " + made.name};
        }
    }
    void refuse(const std::string& why) {
        if (wrong_.empty()) { wrong_ = why; }
    }

    ledger book_;
    bool counts_{};
    std::int64_t calls_{};
    counted_operation* now_{};
    std::string wrong_{}; ///< the first work that could not be entered
    std::deque<std::function<void()>> entries_{};
};

} // namespace pulse_bench

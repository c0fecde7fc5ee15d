#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/plan/optimizer_form.hpp>
#include <pulse/plan/replica_place.hpp>
#include <pulse/train/dynamic_code.hpp>
#include <pulse/train/host_updates.hpp>

namespace pulse::train {

/// Neighbouring parameters of a rank that are updated together, and the number of the first one in the model, by which
/// noise is drawn.
struct update_piece {
    element_range range{};
    std::uint64_t number{};
};

/// What an optimizer keeps of the parameters of some pieces, in the space of `Updates`, one piece behind the other:
/// master weights or what rounding left over, moments, average, each if its optimizer_form has it.
template <class Updates>
class optimizer_state {
public:
    using scalar = typename Updates::scalar;
    using space = typename Updates::space;
    /// Whether passes read weights that are no floats.
    static constexpr bool narrow = Updates::keeps_master;

    /// Throws input_error for a form of weights that the values of `Updates` do not have.
    optimizer_state(const optimizer_form& form, std::vector<update_piece> pieces) :
        form_{require_good(form)}, pieces_{std::move(pieces)} {
        for (const update_piece& piece : pieces_) {
            first_.push_back(size_);
            first_block_.push_back(blocks_);
            size_ += piece.range.size;
            blocks_ += moment_blocks(piece.range.size);
        }
        master_ = floats(narrow && form.weights == weight_form::float32 ? size_ : 0);
        left_over_ = typename space::template array<scalar>(form.weights == weight_form::kahan ? size_ : 0);
        const bool coded = form.moments == moment_form::dynamic8;
        first_moment_ = floats(coded ? 0 : size_);
        second_moment_ = floats(coded ? 0 : size_);
        first_codes_ = codes(coded ? size_ : 0);
        second_codes_ = codes(coded ? size_ : 0);
        first_scales_ = floats(coded ? blocks_ : 0);
        second_scales_ = floats(coded ? blocks_ : 0);
        average_ = floats(form.averages ? size_ : 0);
    }

    [[nodiscard]] const optimizer_form& form() const noexcept { return form_; }
    [[nodiscard]] std::span<const update_piece> pieces() const noexcept { return pieces_; }
    [[nodiscard]] std::span<float> master() noexcept { return {master_.data(), master_.size()}; }
    [[nodiscard]] std::span<float> first_moment() noexcept { return {first_moment_.data(), first_moment_.size()}; }
    [[nodiscard]] std::span<float> second_moment() noexcept { return {second_moment_.data(), second_moment_.size()}; }
    [[nodiscard]] std::span<float> average() noexcept { return {average_.data(), average_.size()}; }
    [[nodiscard]] std::int64_t bytes() const noexcept {
        const std::size_t all = master_.size() + first_moment_.size() + second_moment_.size() + first_scales_.size() +
                                second_scales_.size() + average_.size();
        return static_cast<std::int64_t>(all * sizeof(float) + left_over_.size() * sizeof(scalar) +
                                         first_codes_.size() + second_codes_.size());
    }

    /// Of piece i, with the arrays of the rank's parameters.
    [[nodiscard]] update_arrays<scalar> arrays(std::size_t i, scalar* values, float* gradients) {
        const element_range& r = pieces_[i].range;
        const auto at = [&](auto& array, std::size_t first) {
            return array.size() == 0 ? nullptr : array.data() + first;
        };
        update_arrays<scalar> a{.size = r.size,
                                .gradients = gradients + r.first,
                                .first_moment = at(first_moment_, first_[i]),
                                .second_moment = at(second_moment_, first_[i]),
                                .average = at(average_, first_[i]),
                                .first_codes = at(first_codes_, first_[i]),
                                .second_codes = at(second_codes_, first_[i]),
                                .first_scales = at(first_scales_, first_block_[i]),
                                .second_scales = at(second_scales_, first_block_[i]),
                                .left_over = at(left_over_, first_[i]),
                                .number = pieces_[i].number};
        if constexpr (narrow) {
            a.weights = at(master_, first_[i]);
            a.compute = values + r.first;
        } else {
            a.weights = values + r.first;
        }
        return a;
    }

    /// Sets weights that are kept beside the values, and the average, to `weights` of all of the rank's parameters,
    /// which the values were rounded from.
    void start(std::span<const float> weights) {
        for (std::size_t i = 0; i != pieces_.size(); ++i) {
            const std::span<const float> mine = weights.subspan(pieces_[i].range.first, pieces_[i].range.size);
            put(mine, master_, i);
            put(mine, average_, i);
            if (left_over_.size() == 0) { continue; }
            std::vector<scalar> rests;
            for (const float weight : mine) {
                rests.push_back(truncated(weight - static_cast<float>(static_cast<scalar>(weight))));
            }
            space::template upload<scalar>(rests, left_over_.data() + first_[i]);
        }
    }
    /// Moments and average that were read, of all of the rank's parameters.
    void set(std::span<const float> first, std::span<const float> second, std::span<const float> average) {
        for (std::size_t i = 0; i != pieces_.size(); ++i) {
            const element_range& r = pieces_[i].range;
            put(average.subspan(r.first, r.size), average_, i);
            put(first.subspan(r.first, r.size), first_moment_, i);
            put(second.subspan(r.first, r.size), second_moment_, i);
            if (first_codes_.size() == 0) { continue; }
            encode(first_codes, first.subspan(r.first, r.size), first_codes_, first_scales_, i);
            encode(second_codes, second.subspan(r.first, r.size), second_codes_, second_scales_, i);
        }
    }
    /// Of the pieces, in order, on the host: weights with all that is kept of them, given the rank's values.
    [[nodiscard]] std::vector<float> read_weights(std::span<const scalar> values) const {
        if (master_.size() != 0) { return downloaded(master_); }
        std::vector<float> all;
        for (std::size_t i = 0; i != pieces_.size(); ++i) {
            const std::size_t n = pieces_[i].range.size;
            std::vector<scalar> here(n);
            space::template download<scalar>(values.data() + pieces_[i].range.first, here);
            std::vector<scalar> rests(left_over_.size() == 0 ? 0 : n);
            if (!rests.empty()) { space::template download<scalar>(left_over_.data() + first_[i], rests); }
            for (std::size_t k = 0; k != n; ++k) {
                all.push_back(static_cast<float>(here[k]) + (rests.empty() ? 0.0F : static_cast<float>(rests[k])));
            }
        }
        return all;
    }
    [[nodiscard]] std::vector<float> read_first_moment() const {
        return read(first_codes, first_moment_, first_codes_, first_scales_);
    }
    [[nodiscard]] std::vector<float> read_second_moment() const {
        return read(second_codes, second_moment_, second_codes_, second_scales_);
    }
    /// Empty where none is kept.
    [[nodiscard]] std::vector<float> read_average() const { return downloaded(average_); }

private:
    using floats = typename space::template array<float>;
    using codes = typename space::template array<std::uint8_t>;

    [[nodiscard]] static const optimizer_form& require_good(const optimizer_form& form) {
        const bool rounds = form.weights != weight_form::float32;
        if (rounds && !Updates::rounds_to_bfloat16) {
            throw input_error{"rank_optimizer: weights: kahan and stochastic are for values in bf16"};
        }
        return form;
    }
    /// Never more than half of the last place of what it is left over of, so that the two can be told from their sum.
    [[nodiscard]] static scalar truncated(float value) noexcept {
        return static_cast<scalar>(std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) & 0xFFFF0000U));
    }
    [[nodiscard]] static std::vector<float> downloaded(const floats& from) {
        std::vector<float> here(from.size());
        space::template download<float>(from.data(), here);
        return here;
    }
    void put(std::span<const float> from, floats& to, std::size_t piece) const {
        if (to.size() != 0) { space::template upload<float>(from, to.data() + first_[piece]); }
    }
    void encode(const code_map& map, std::span<const float> values, codes& to, floats& scales, std::size_t piece) {
        std::vector<std::uint8_t> made(values.size());
        std::vector<float> by(moment_blocks(values.size()));
        for_each_moment_block(values.size(), [&](std::size_t block, std::size_t first, std::size_t size) {
            by[block] = encode_block(map, values.subspan(first, size), std::span{made}.subspan(first, size));
        });
        space::template upload<std::uint8_t>(made, to.data() + first_[piece]);
        space::template upload<float>(by, scales.data() + first_block_[piece]);
    }
    [[nodiscard]] std::vector<float> read(const code_map& map, const floats& plain, const codes& coded,
                                          const floats& scales) const {
        if (coded.size() == 0) { return downloaded(plain); }
        std::vector<std::uint8_t> here(coded.size());
        space::template download<std::uint8_t>(coded.data(), here);
        const std::vector<float> by = downloaded(scales);
        std::vector<float> all(here.size());
        for (std::size_t i = 0; i != pieces_.size(); ++i) {
            for_each_moment_block(pieces_[i].range.size, [&](std::size_t block, std::size_t first, std::size_t size) {
                decode_block(map, std::span{here}.subspan(first_[i] + first, size), by[first_block_[i] + block],
                             std::span{all}.subspan(first_[i] + first, size));
            });
        }
        return all;
    }

    optimizer_form form_;
    std::vector<update_piece> pieces_;
    std::vector<std::size_t> first_{};       ///< of each piece, among all elements
    std::vector<std::size_t> first_block_{}; ///< and among all blocks
    std::size_t size_{};
    std::size_t blocks_{};
    floats master_{};
    typename space::template array<scalar> left_over_{};
    floats first_moment_{};
    floats second_moment_{};
    codes first_codes_{};
    codes second_codes_{};
    floats first_scales_{};
    floats second_scales_{};
    floats average_{};
};

} // namespace pulse::train

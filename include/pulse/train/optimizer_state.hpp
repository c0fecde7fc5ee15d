#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/model/parameter.hpp>
#include <pulse/plan/optimizer_form.hpp>
#include <pulse/plan/replica_place.hpp>
#include <pulse/train/dynamic_code.hpp>
#include <pulse/train/host_updates.hpp>

namespace pulse::train {

/// Consecutive parameters of a rank that are updated together, and the number of the first one in the model, which
/// selects its rounding noise. Where moments are factored it is one tensor, with its rows (parameter::matrix_rows).
struct update_piece {
    element_range range{};
    std::uint64_t number{};
    std::size_t rows{};
    std::ptrdiff_t shift{}; ///< from the position of its values to that of its gradients
};

/// Optimizer state of the parameters of some pieces, in the space of `Updates`, one piece after the other: master
/// weights or rounding remainders, moments, average, each if its optimizer_form has it.
template <class Updates>
class optimizer_state {
public:
    using scalar = typename Updates::scalar;
    using space = typename Updates::space;
    /// Whether passes read weights narrower than float.
    static constexpr bool narrow = Updates::keeps_master;

    /// Throws input_error for a form of weights that needs bf16 where `Updates` does not round to it.
    optimizer_state(const optimizer_form& form, std::vector<update_piece> pieces) : pieces_{std::move(pieces)} {
        require_good(form);
        for (const update_piece& piece : pieces_) {
            first_.push_back(size_);
            first_block_.push_back(blocks_);
            first_mean_.push_back(means_);
            size_ += piece.range.size;
            blocks_ += blocks_of(piece.range.size);
            means_ += factored_elements(piece.range.size, piece.rows);
        }
        master_ = floats(narrow && form.weights == weight_form::float32 ? size_ : 0);
        left_over_ = typename space::template array<scalar>(form.weights == weight_form::kahan ? size_ : 0);
        const bool coded = form.moments == moment_form::dynamic8;
        factored_ = form.is_factored();
        for (moment* one : {&mean_, &square_}) {
            one->values = floats(coded || factored_ ? 0 : size_);
            one->codes = typename space::template array<std::uint8_t>(coded ? size_ : 0);
            one->scales = floats(coded ? blocks_ : 0);
        }
        if (factored_) { square_.values = floats(means_); }
        average_ = floats(form.averages ? size_ : 0);
    }

    [[nodiscard]] std::span<const update_piece> pieces() const noexcept { return pieces_; }
    [[nodiscard]] std::span<float> master() noexcept { return {master_.data(), master_.size()}; }
    [[nodiscard]] std::span<float> first_moment() noexcept { return {mean_.values.data(), mean_.values.size()}; }
    [[nodiscard]] std::span<float> second_moment() noexcept { return {square_.values.data(), square_.values.size()}; }
    [[nodiscard]] std::span<float> average() noexcept { return {average_.data(), average_.size()}; }
    [[nodiscard]] std::int64_t bytes() const noexcept {
        std::size_t all = (master_.size() + average_.size()) * sizeof(float) + left_over_.size() * sizeof(scalar);
        for (const moment* one : {&mean_, &square_}) {
            all += (one->values.size() + one->scales.size()) * sizeof(float) + one->codes.size();
        }
        return static_cast<std::int64_t>(all);
    }

    /// Arrays of piece i, given the arrays of the rank's parameters.
    [[nodiscard]] update_arrays<scalar> arrays(std::size_t i, scalar* values, const float* gradients) {
        const element_range& r = pieces_[i].range;
        const auto at = [&](auto& array, std::size_t first) {
            return array.size() == 0 ? nullptr : array.data() + first;
        };
        update_arrays<scalar> a{.size = r.size,
                                .gradients = gradients + (static_cast<std::ptrdiff_t>(r.first) + pieces_[i].shift),
                                .first_moment = at(mean_.values, first_[i]),
                                .second_moment = at(square_.values, factored_ ? first_mean_[i] : first_[i]),
                                .average = at(average_, first_[i]),
                                .first_codes = at(mean_.codes, first_[i]),
                                .second_codes = at(square_.codes, first_[i]),
                                .first_scales = at(mean_.scales, first_block_[i]),
                                .second_scales = at(square_.scales, first_block_[i]),
                                .left_over = at(left_over_, first_[i]),
                                .number = pieces_[i].number,
                                .rows = pieces_[i].rows};
        if constexpr (narrow) {
            a.weights = at(master_, first_[i]);
            a.compute = values + r.first;
        } else {
            a.weights = values + r.first;
        }
        return a;
    }

    /// Sets master weights or remainders, and the average, from `weights`: the rank's parameters from `first` on,
    /// before they were rounded to the values.
    void start(std::size_t first, std::span<const float> weights) {
        for_each_in({first, weights.size()}, [&](std::size_t i, const element_range& part) {
            const std::span<const float> mine = weights.subspan(part.first - first, part.size);
            const std::size_t at = place_of(i, part);
            for (floats* kept : {&master_, &average_}) { put(mine, *kept, at); }
            if (left_over_.size() == 0) { return; }
            std::vector<scalar> rests;
            for (const float weight : mine) {
                rests.push_back(truncated(weight - static_cast<float>(static_cast<scalar>(weight))));
            }
            space::template upload<scalar>(rests, left_over_.data() + at);
        });
    }
    /// Whether a block's moments have this form: if factored, no first ones, and means as read_second_moment() returns.
    [[nodiscard]] bool has_form(const element_range& block, std::size_t first_moments,
                                std::size_t second_moments) const {
        if (!factored_) { return first_moments == block.size && second_moments == block.size; }
        std::size_t means = 0;
        for_each_in(block, [&](std::size_t i, const element_range&) { means += means_of(i); });
        return first_moments == 0 && second_moments == means;
    }
    /// Sets the moments, which must have that form, and the average of a block of the rank's parameters.
    void set_first_moment(const element_range& block, std::span<const float> read) {
        if (!factored_) { set(block, read, mean_); }
    }
    void set_second_moment(const element_range& block, std::span<const float> read) {
        if (!factored_) { return set(block, read, square_); }
        for_each_in(block, [&](std::size_t i, const element_range&) {
            put(read.first(means_of(i)), square_.values, first_mean_[i]);
            read = read.subspan(means_of(i));
        });
    }
    void set_average(const element_range& block, std::span<const float> read) { set(block, read, average_); }
    /// The pieces' part of a block, in order, on the host: weights with everything kept of them, given the rank's
    /// values.
    [[nodiscard]] std::vector<float> read_weights(const element_range& block, std::span<const scalar> values) const {
        if (master_.size() != 0) { return read(block, master_); }
        std::vector<float> all;
        for_each_in(block, [&](std::size_t i, const element_range& part) {
            std::vector<scalar> here(part.size);
            space::template download<scalar>(values.data() + part.first, here);
            std::vector<scalar> rests(left_over_.size() == 0 ? 0 : part.size);
            if (!rests.empty()) { space::template download<scalar>(left_over_.data() + place_of(i, part), rests); }
            for (std::size_t k = 0; k != part.size; ++k) {
                all.push_back(static_cast<float>(here[k]) + (rests.empty() ? 0.0F : static_cast<float>(rests[k])));
            }
        });
        return all;
    }
    /// Empty where moments are factored.
    [[nodiscard]] std::vector<float> read_first_moment(const element_range& block) const { return read(block, mean_); }
    /// Where moments are factored: for each tensor the means of rows, then of columns.
    [[nodiscard]] std::vector<float> read_second_moment(const element_range& block) const {
        if (!factored_) { return read(block, square_); }
        std::vector<float> all;
        for_each_in(block, [&](std::size_t i, const element_range&) {
            append(square_.values.data() + first_mean_[i], means_of(i), all);
        });
        return all;
    }
    /// Empty where no average is kept.
    [[nodiscard]] std::vector<float> read_average(const element_range& block) const { return read(block, average_); }

private:
    using floats = typename space::template array<float>;

    /// Values, or codes with their scales.
    struct moment {
        const code_map& map;
        floats values{};
        typename space::template array<std::uint8_t> codes{};
        floats scales{};
    };

    static void require_good(const optimizer_form& form) {
        const bool rounds = form.weights != weight_form::float32;
        if (rounds && !Updates::rounds_to_bfloat16) {
            throw input_error{"rank_optimizer: weights: kahan and stochastic need values in bf16"};
        }
    }
    [[nodiscard]] static std::size_t blocks_of(std::size_t elements) noexcept {
        return static_cast<std::size_t>(moment_blocks(static_cast<std::int64_t>(elements)));
    }
    /// Truncates, so that a remainder is at most half an ulp of its weight: their sum determines both.
    [[nodiscard]] static scalar truncated(float value) noexcept {
        return static_cast<scalar>(std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) & 0xFFFF0000U));
    }
    /// Calls act(i, part) for the part of each piece i inside `range`.
    template <class Act>
    void for_each_in(const element_range& range, const Act& act) const {
        for (std::size_t i = 0; i != pieces_.size(); ++i) {
            const element_range& piece = pieces_[i].range;
            const std::size_t from = std::max(range.first, piece.first);
            const std::size_t to = std::min(range.first + range.size, piece.first + piece.size);
            if (from < to) { act(i, element_range{from, to - from}); }
        }
    }
    /// Index of a part of piece i among all elements.
    [[nodiscard]] std::size_t place_of(std::size_t i, const element_range& part) const {
        return first_[i] + (part.first - pieces_[i].range.first);
    }
    [[nodiscard]] std::size_t means_of(std::size_t i) const {
        return factored_elements(pieces_[i].range.size, pieces_[i].rows);
    }
    static void append(const float* from, std::size_t size, std::vector<float>& to) {
        to.resize(to.size() + size);
        space::template download<float>(from, std::span{to}.last(size));
    }
    static void put(std::span<const float> from, floats& to, std::size_t at) {
        if (to.size() != 0) { space::template upload<float>(from, to.data() + at); }
    }
    void set(const element_range& block, std::span<const float> read, floats& to) const {
        for_each_in(block, [&](std::size_t i, const element_range& part) {
            put(read.subspan(part.first - block.first, part.size), to, place_of(i, part));
        });
    }
    void set(const element_range& block, std::span<const float> read, moment& to) const {
        set(block, read, to.values);
        if (to.codes.size() == 0) { return; }
        // a piece with codes lies within one parameter block
        for_each_in(block, [&](std::size_t i, const element_range& part) {
            encode(read.subspan(part.first - block.first, part.size), to, i);
        });
    }
    void encode(std::span<const float> from, moment& to, std::size_t piece) const {
        std::vector<std::uint8_t> made(from.size());
        std::vector<float> scales(blocks_of(from.size()));
        for_each_moment_block(from.size(), [&](std::size_t block, std::size_t first, std::size_t size) {
            scales[block] = encode_block(to.map, from.subspan(first, size), std::span{made}.subspan(first, size));
        });
        space::template upload<std::uint8_t>(made, to.codes.data() + first_[piece]);
        space::template upload<float>(scales, to.scales.data() + first_block_[piece]);
    }
    [[nodiscard]] std::vector<float> read(const element_range& block, const floats& from) const {
        std::vector<float> all;
        if (from.size() == 0) { return all; }
        for_each_in(block, [&](std::size_t i, const element_range& part) {
            append(from.data() + place_of(i, part), part.size, all);
        });
        return all;
    }
    [[nodiscard]] std::vector<float> read(const element_range& block, const moment& from) const {
        if (from.codes.size() == 0) { return read(block, from.values); }
        std::vector<float> all;
        for_each_in(block, [&](std::size_t i, const element_range& part) {
            std::vector<std::uint8_t> codes(part.size);
            space::template download<std::uint8_t>(from.codes.data() + first_[i], codes);
            std::vector<float> scales;
            append(from.scales.data() + first_block_[i], blocks_of(part.size), scales);
            const std::size_t at = all.size();
            all.resize(at + part.size);
            for_each_moment_block(part.size, [&](std::size_t b, std::size_t first, std::size_t size) {
                decode_block(from.map, std::span{codes}.subspan(first, size), scales[b],
                             std::span{all}.subspan(at + first, size));
            });
        });
        return all;
    }

    std::vector<update_piece> pieces_;
    std::vector<std::size_t> first_{};       ///< index of each piece's first element, among all
    std::vector<std::size_t> first_block_{}; ///< and of its first moment block
    std::vector<std::size_t> first_mean_{};  ///< and of its first float of factored moments
    std::size_t size_{};
    std::size_t blocks_{};
    std::size_t means_{};
    bool factored_{};
    floats master_{};
    typename space::template array<scalar> left_over_{};
    moment mean_{first_codes};
    moment square_{second_codes};
    floats average_{};
};

} // namespace pulse::train

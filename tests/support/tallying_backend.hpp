#pragma once

#include <map>
#include <string_view>

#include <pulse/reference/backend.hpp>

namespace pulse::test {

/// Calls of each operation, by name.
using tally = std::map<std::string_view, int>;

/// The reference backend, counting the operations of UNets and of transformers with a text.
template <class T>
struct tallying_backend : reference::backend<T> {
    using base = reference::backend<T>;
    tally seen{};

    void conv2d(auto... of) {
        ++seen["conv2d"];
        base::conv2d(of...);
    }
    void conv2d_backward_input(auto... of) {
        ++seen["conv2d_backward_input"];
        base::conv2d_backward_input(of...);
    }
    void conv2d_backward_weight(auto... of) {
        ++seen["conv2d_backward_weight"];
        base::conv2d_backward_weight(of...);
    }
    void conv2d_pair(auto... of) {
        ++seen["conv2d_pair"];
        base::conv2d_pair(of...);
    }
    void conv2d_pair_backward_input(auto... of) {
        ++seen["conv2d_pair_backward_input"];
        base::conv2d_pair_backward_input(of...);
    }
    void conv2d_pair_backward_weight(auto... of) {
        ++seen["conv2d_pair_backward_weight"];
        base::conv2d_pair_backward_weight(of...);
    }
    void linear(auto... of) {
        ++seen["linear"];
        base::linear(of...);
    }
    void linear_backward_input(auto... of) {
        ++seen["linear_backward_input"];
        base::linear_backward_input(of...);
    }
    void linear_backward_weight(auto... of) {
        ++seen["linear_backward_weight"];
        base::linear_backward_weight(of...);
    }
    void group_norm(auto... of) {
        ++seen["group_norm"];
        base::group_norm(of...);
    }
    void group_norm_backward(auto... of) {
        ++seen["group_norm_backward"];
        base::group_norm_backward(of...);
    }
    void layer_norm(auto... of) {
        ++seen["layer_norm"];
        base::layer_norm(of...);
    }
    void layer_norm_backward(auto... of) {
        ++seen["layer_norm_backward"];
        base::layer_norm_backward(of...);
    }
    void attention(auto... of) {
        ++seen["attention"];
        base::attention(of...);
    }
    void attention_backward(auto... of) {
        ++seen["attention_backward"];
        base::attention_backward(of...);
    }
    void add(auto... of) {
        ++seen["add"];
        base::add(of...);
    }
    void add_per_sample(auto... of) {
        ++seen["add_per_sample"];
        base::add_per_sample(of...);
    }
    void copy(auto... of) {
        ++seen["copy"];
        base::copy(of...);
    }
};

} // namespace pulse::test

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/cuda/backend.cuh>
#include <pulse/encode/text_encoder.hpp>
#include <pulse/reference/backend.hpp>

#include <encode/text_encoders.hpp>
#include <support/bfloat16.hpp>
#include <support/difference.hpp>

namespace cuda = pulse::cuda;
using namespace pulse::test::text;
using pulse::parameter;

namespace {

/// The network's results on a backend, with seeded weights that every backend's scalars hold exactly: states, then the
/// pooled text.
template <class Network, class B>
std::vector<double> encode(B& on) {
    using T = typename B::scalar;
    using A = typename B::accumulator;
    using space = pulse::space_of<B>;
    constexpr int samples = 2;
    std::mt19937 random{9};
    pulse::encode::text_encoder<Network, B> encoder{on, samples};
    encoder.load([&](const parameter& p, std::span<float> to) {
        std::normal_distribution<float> draw{p.rank == 1 ? 1.0F : 0.0F, 0.3F};
        for (float& value : to) { value = std::round(64.0F * draw(random)) / 64.0F; }
    });
    std::vector<std::int32_t> ids;
    std::vector<std::int32_t> mask;
    for (int i = 0; i != samples * Network::tokens; ++i) {
        ids.push_back(std::uniform_int_distribution<std::int32_t>{0, Network::vocabulary - 1}(random));
        mask.push_back(i % Network::tokens < Network::tokens - 3 ? 1 : 0);
    }
    const auto known = pulse::encode::text_facts_of<Network, A>(samples, ids, mask);
    typename space::template array<A> facts(known.size());
    space::template upload<A>(known, facts.data());
    const std::size_t states = samples * Network::states::elements;
    std::vector<T> made(states + (Network::pools ? samples * Network::pooled::elements : 0));
    typename space::template array<T> given(made.size());
    encoder.run(samples, facts.data(), given.data(), Network::pools ? given.data() + states : nullptr);
    if constexpr (requires { on.synchronize(); }) { on.synchronize(); }
    space::template download<T>(given.data(), made);
    std::vector<double> wide;
    for (const T value : made) { wide.push_back(static_cast<double>(static_cast<float>(value))); }
    return wide;
}

/// Greatest difference of a network on a backend from the plain loops in double, relative to their greatest value.
template <class Network, class B>
double relative_difference(B&& on) {
    pulse::reference::backend<double> plain;
    return pulse::test::difference_of(encode<Network>(on), encode<Network>(plain)).relative();
}

/// The device's rounding costs about as much as that of the plain loops, which round the same tensors.
template <class Network>
void check_rounded() {
    const double plain = relative_difference<Network>(pulse::reference::backend<pulse::test::bfloat16, float>{});
    CHECK(plain > 1e-4);
    CHECK(relative_difference<Network>(cuda::backend<cuda::bf16>{}) < 2.0 * plain);
}

} // namespace

TEST_CASE("text encoders on the device are those of the plain loops") {
    CHECK(relative_difference<clip_text<clip>>(cuda::backend<cuda::fp32>{}) < 1e-5);
    CHECK(relative_difference<clip_text<bigg>>(cuda::backend<cuda::fp32>{}) < 1e-5);
    CHECK(relative_difference<bert_text<bert>>(cuda::backend<cuda::fp32>{}) < 1e-5);
    CHECK(relative_difference<t5_text<t5>>(cuda::backend<cuda::fp32>{}) < 1e-5);
    check_rounded<clip_text<bigg>>();
    check_rounded<t5_text<t5>>();
}

#include <doctest/doctest.h>

#include <initializer_list>

#include <support/sized_model.hpp>
#include <support/wave_training.hpp>
#include <pulse/model/extent.hpp>
#include <pulse/zoo/ddpm.hpp>
#include <pulse/zoo/stable_diffusion.hpp>

using namespace pulse;
using namespace pulse::test;

namespace {

/// Model resized to Size x Size has the plan and the training of the type of that size.
template <class Model, int Size>
void check_square(int ranks) {
    CAPTURE(Size);
    const tuning typed = plan_on<sized<Model, Size>>(ranks, true);
    tuning resized = plan_on<Model>(ranks, true, {Size, Size});
    CHECK(resized.extent == extent{Size, Size});
    CHECK(resized.costs == typed.costs);
    CHECK(resized.plan == typed.plan);
    const measured want = train_on<sized<Model, Size>>(typed, 3);
    const measured found = train_on<Model>(resized, 3);
    CHECK((found.result == want.result));
    CHECK(found.sent.boundary == want.sent.boundary);
}

/// Model at a rectangle gives the bits of one rank on any number of ranks, within the planned memory (train_on).
template <class Model>
void check_rectangle(const extent& to, std::initializer_list<int> degrees) {
    CAPTURE(to.height);
    CAPTURE(to.width);
    const measured want = train_on<Model>(plan_on<Model>(1, false, to), 4);
    CHECK(want.result.losses.back() < want.result.losses.front());
    for (const int ranks : degrees) {
        for (const bool split : {false, true}) {
            CAPTURE(ranks);
            CAPTURE(split);
            const measured found = train_on<Model>(plan_on<Model>(ranks, split, to), 4);
            CHECK((found.result == want.result));
            CHECK(found.sent.skip == 0);
        }
    }
}

} // namespace

TEST_CASE("a model at another extent is planned and trained as the model whose type has it, to the bit") {
    check_square<ddpm_tiny, 12>(3);
}

TEST_CASE("a model at a rectangle is trained on folded ranks to the bits of one rank, in the planned memory") {
    check_rectangle<sd_tiny>({4, 12}, {2});
    check_rectangle<ddpm_tiny>({14, 2}, {2, 3});
}

TEST_CASE("a plan for an extent that the model cannot be of is refused, before anything is searched") {
    CHECK_THROWS_AS(static_cast<void>(plan_on<ddpm_tiny>(2, true, {12, 11})), input_error);
    planned made = plan_on<ddpm_tiny>(1, false);
    made.extent = {12, 12}; // the costs are of 8 x 8
    threads::run_ranks(1, {}, [&](threads::transport& transport) {
        CHECK_THROWS_AS((trainer<ddpm_tiny, wave_math>{transport, made}), input_error);
    });
}

#include <doctest/doctest.h>

#include <pulse/runtime/skip_cache.hpp>

using namespace pulse;

TEST_CASE("a skip cache keeps references, by edge and microbatch, up to what the plan says") {
    float a = 1;
    float b = 2;
    skip_cache<float, resident> cache{3, 2};
    cache.stash(edge_id{1}, microbatch_id{4}, &a);
    cache.stash(edge_id{1}, microbatch_id{5}, &b);
    cache.stash(edge_id{2}, microbatch_id{4}, &b);
    CHECK(cache.fetch(edge_id{1}, microbatch_id{4}) == &a);
    CHECK(cache.fetch(edge_id{1}, microbatch_id{5}) == &b);
    CHECK(cache.fetch(edge_id{2}, microbatch_id{4}) == &b);
    CHECK(cache.held() == 3);
    CHECK_THROWS_AS(cache.stash(edge_id{1}, microbatch_id{6}, &a), error);
    CHECK_THROWS_AS(static_cast<void>(cache.fetch(edge_id{0}, microbatch_id{4})), error);
    cache.drop(edge_id{1}, microbatch_id{4});
    CHECK_THROWS_AS(static_cast<void>(cache.fetch(edge_id{1}, microbatch_id{4})), error);
    cache.stash(edge_id{1}, microbatch_id{6}, &a);
    CHECK(cache.fetch(edge_id{1}, microbatch_id{6}) == &a);
    CHECK(cache.most_held() == 3);
}

#include <doctest/doctest.h>

#include <stdexcept>
#include <utility>

#include <pulse/core/owner.hpp>

namespace {

int destroyed = 0;

/// Declared like in a C library; counts what it destroys.
int destroy(int* object) {
    ++destroyed;
    *object = -1;
    return 0;
}

using owned = pulse::owner<int*, destroy>;

owned make(int& object) {
    owned made;
    *made.place() = &object;
    return made;
}

} // namespace

TEST_CASE("an object is destroyed once, by its last owner, and an owner without an object destroys nothing") {
    destroyed = 0;
    int first = 1;
    int second = 2;
    {
        const owned nothing;
        CHECK(nothing.get() == nullptr);
        owned one = make(first);
        owned other{std::move(one)};
        CHECK(one.get() == nullptr); // NOLINT(bugprone-use-after-move): it owns nothing any more
        CHECK(other.get() == &first);
        other = make(second);
        CHECK(first == -1);
        CHECK(destroyed == 1);
        owned& same = other;
        other = std::move(same);
        CHECK(other.get() == &second);
        CHECK(second == 2);
    }
    CHECK(second == -1);
    CHECK(destroyed == 2);
}

TEST_CASE("an object is destroyed when what comes after it in a constructor throws") {
    struct two {
        owned object{};
        explicit two(int& of) {
            *object.place() = &of;
            throw std::runtime_error{"of the second"};
        }
    };
    destroyed = 0;
    int object = 1;
    CHECK_THROWS_AS(two{object}, std::runtime_error);
    CHECK(object == -1);
    CHECK(destroyed == 1);
}

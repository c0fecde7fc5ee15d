#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <launch/ranks.hpp>
#include <pulse/core/fingerprint.hpp>
#include <pulse/launch/agree.hpp>
#include <pulse/launch/build.hpp>
#include <pulse/launch/control_plane.hpp>
#include <pulse/launch/rendezvous.hpp>
#include <pulse/launch/tcp_store.hpp>

using namespace pulse;
using namespace pulse::launch;
using namespace pulse::test;

namespace agreeing {

namespace {

/// The results of `ranks` threads, each bringing values_of(rank).
template <class ValuesOf>
std::vector<std::string> bring(int ranks, ValuesOf values_of) {
    const std::uint16_t port = free_port();
    return on_threads(ranks, [&](int r) -> std::string {
        const rank_identity who = rank_of(r, ranks);
        tcp_store store{who, {{"127.0.0.1", port}, "", 5s}};
        control_plane control{store, who, rendezvous(store, who, 5s), {.timeout = 5s}};
        agree(control, {{"the same", "everywhere"}});
        agree(control, values_of(r));
        control.sum({});
        return "agreed";
    });
}

void check_all(const std::vector<std::string>& said, const std::string& wanted) {
    for (const std::string& s : said) { CHECK(s == wanted); }
}

/// The bytes of an ELF note with padded parts.
std::string note(std::string_view owner, std::uint32_t type, std::string_view content, std::size_t alignment) {
    const ElfW(Nhdr) head{static_cast<std::uint32_t>(owner.size()), static_cast<std::uint32_t>(content.size()), type};
    std::string bytes(sizeof head, '\0');
    std::memcpy(bytes.data(), &head, sizeof head);
    const auto pad = [&] { bytes.resize((bytes.size() + alignment - 1) / alignment * alignment, '\0'); };
    bytes.append(owner);
    pad();
    bytes.append(content);
    pad();
    return bytes;
}

} // namespace

TEST_CASE("what all ranks must have in common is compared, and every rank hears who has what instead") {
    check_all(bring(4, [](int) { return std::vector<common_value>{{"build", "1"}, {"plan", "2"}}; }), "agreed");
    check_all(bring(1, [](int) { return std::vector<common_value>{{"build", "1"}}; }), "agreed");
    check_all(bring(4,
                    [](int r) {
                        return std::vector<common_value>{{"build", "1"}, {"plan", r == 2 ? "0eef" : "a3f1"}};
                    }),
              "error: pulse: the ranks differ: plan: rank 2 has 0eef, rank 0 has a3f1");
    check_all(bring(5,
                    [](int r) {
                        return std::vector<common_value>{{"build", r % 2 == 0 ? "even" : "odd"},
                                                         {"model", "one"},
                                                         {"plan", r == 3   ? "c"
                                                                  : r == 0 ? "a"
                                                                           : "b"}};
                    }),
              "error: pulse: the ranks differ: build: ranks 1 and 3 have odd, rank 0 has even; plan: ranks 1, 2 and 4 "
              "have b, rank 3 has c, rank 0 has a");
    // of many values only three are shown
    check_all(
        bring(6,
              [](int r) {
                  return std::vector<common_value>{{"plan", std::to_string(r)}};
              }),
        "error: pulse: the ranks differ: plan: rank 1 has 1, rank 2 has 2, rank 3 has 3, and so on, rank 0 has 0");
}

TEST_CASE("a value that a rank does not have is different, and one that is long is cut") {
    check_all(bring(2,
                    [](int r) {
                        std::vector<common_value> mine{{"build", "1"}};
                        if (r == 1) { mine.push_back({"plan", "2"}); }
                        return mine;
                    }),
              "error: pulse: the ranks differ: plan: rank 1 has 2, rank 0 has nothing");
    const std::string start(64, 'x');
    const auto text = [&](int r) { return start + std::to_string(r); };
    const auto cut = [&](int r) { return std::string(32, 'x') + "... (" + fingerprint{}.add(text(r)).text() + ")"; };
    check_all(bring(2,
                    [&](int r) {
                        return std::vector<common_value>{{"plan", text(r)}};
                    }),
              "error: pulse: the ranks differ: plan: rank 1 has " + cut(1) + ", rank 0 has " + cut(0));
    const auto bell = bring(2, [&](int r) { return std::vector<common_value>{{"plan", r == 0 ? "" : "\a"}}; });
    check_all(bell, "error: pulse: the ranks differ: plan: rank 1 has ?... (" + fingerprint{}.add("\a").text() +
                        "), rank 0 has nothing");
}

TEST_CASE("the build text names this program's compiler and build id, and build ids are found in notes") {
    const std::string text = build_text();
    CHECK(text == build_text());
    CHECK(text.find(launch::detail::compiler_text()) != std::string::npos);
    CHECK(text.find_first_not_of("0123456789abcdef") == 16);

    const std::string id = note({"GNU", 4}, 3, "\x01\x2f\xff\x80", 4);
    CHECK(launch::detail::build_id_in(id, 4) == "012fff80");
    for (const std::size_t alignment : {std::size_t{4}, std::size_t{8}}) {
        // behind notes of another kind or owner
        const std::string others = note({"GNU", 4}, 5, "12345678901", alignment) + note("other", 3, "123", alignment);
        CHECK(launch::detail::build_id_in(others, alignment).empty());
        const std::string all = others + note({"GNU", 4}, 3, "\x12\x34\x56", alignment);
        CHECK(launch::detail::build_id_in(all, alignment) == "123456");
        // truncated anywhere, it is not read past its end
        for (std::size_t size = 0; size != others.size() + 19; ++size) {
            const std::vector<char> part(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(size));
            CHECK(launch::detail::build_id_in({part.data(), part.size()}, alignment).empty());
        }
    }
}

} // namespace agreeing

#include <cstddef>
#include <set>

#include <doctest/doctest.h>

#include <support/check_both.hpp>
#include <pulse/reference/backend.hpp>
#include <pulse/runtime/layer_table.hpp>
#include <pulse/zoo/controlnet.hpp>
#include <pulse/zoo/hunyuan_dit.hpp>
#include <pulse/zoo/sdxl.hpp>
#include <pulse/zoo/stable_diffusion.hpp>
#include <pulse/zoo/uvit.hpp>

using namespace pulse;

namespace {

using math = reference::backend<float>;

/// Checks that every layer of M, and its conditioning module, has passes that compile for a backend. Returns the number
/// of distinct forward passes: equal layers share theirs.
template <class M>
std::size_t compiled_passes() {
    static constexpr auto table = layer_table<M, math>();
    CHECK_BOTH(table.size() == M::layer_count);
    std::set<decltype(layer_entry<math>::forward)> different;
    for (const layer_entry<math>& entry : table) { different.insert(entry.forward); }
    if constexpr (M::is_conditioned) {
        using embedder = typename M::conditioning;
        const auto forward = &embedder::template forward<math>;
        const auto backward = &embedder::template backward_weight<math>;
        CHECK(different.insert(forward).second);
        CHECK(different.insert(backward).second);
        return different.size() - 2;
    }
    return different.size();
}

} // namespace

TEST_CASE("the backbones of the zoo run: all their layers compile for a backend") {
    CHECK(compiled_passes<sd21>() < sd21::layer_count);
    // Locked layers are identified by name: equal ones share nothing.
    CHECK(compiled_passes<controlnet_sd15>() == controlnet_sd15::layer_count);
    CHECK(compiled_passes<sdxl>() < sdxl::layer_count);
    // A beginning, blocks with and without a skip, an end.
    CHECK(compiled_passes<hunyuan_dit_v12>() == 4);
    CHECK(compiled_passes<uvit_l2>() == 4);
}

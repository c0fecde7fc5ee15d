#include <iostream>

#include "tiny.hpp"

#ifdef USES_io
#include <nlohmann/json.hpp>
#include <zlib.h>
#include <pulse/io/safetensors.hpp>
#endif
#ifdef USES_encode
#include <pulse/encode/tokenizer_folder.hpp>
#endif
#ifdef USES_data
#include <pulse/data/captioned_pictures.hpp>
#include <pulse/data/open_pictures.hpp>
#endif
#if defined(USES_host) || defined(USES_compiled_host)
#include <pulse/onednn/backend.hpp>
#endif
#ifdef USES_pictures
#include <pulse/pictures.hpp>
#include <pulse/zoo/stable_diffusion.hpp>
#endif
#ifdef USES_glpk
#include <pulse/schedule/prove/glpk.hpp>
#endif
#ifdef USES_mpi
#include <pulse/mpi/run_rank.hpp>
#endif

#ifdef USES_compiled
#include <pulse/planner.hpp>
#endif

pulse::graph_view other_unit();
#ifdef USES_cuda
int scale_on_device();
#endif

int main() {
#ifdef USES_data
    try {
        const pulse::data::captioned_pictures none{pulse::data::open_pictures("no such folder"), {}};
        return 1;
    } catch (const pulse::input_error&) {}
#endif
#ifdef USES_pictures
    try {
        pulse::pictures<pulse::sd_tiny> none{{.data = "no such folder", .networks = "no such folder"}};
        return 1;
    } catch (const pulse::input_error&) {}
#endif
#ifdef USES_cuda
    if (scale_on_device() != 0) { return 1; }
#endif
#ifdef USES_compiled
    const auto costs = pulse::analytic_costs(pulse::graph_of<consumer::tiny>().view(), pulse::cpu_core, 1, 4);
    if (pulse::sequential_partition(costs, 2).stages.size() != 2) { return 1; }
#endif
#ifdef USES_compiled_host
    float two[2]{-1.0F, 1.0F};
    pulse::onednn::backend{}.silu(2, two, two);
    if (!(two[0] < 0.0F && two[1] > 0.0F)) { return 1; }
#endif
    constexpr auto graph = pulse::graph_of<consumer::tiny>();
    static_assert(graph.skips[0] == pulse::skip_link{0, 2, 4});
    const auto seen = other_unit();
    std::cout << seen.model.view() << ": " << seen.layers.size() << " layers, " << consumer::tiny::parameter_count()
              << " parameters\n";
    return seen.layers.size() == 3 && seen.skips[0] == graph.skips[0] ? 0 : 1;
}

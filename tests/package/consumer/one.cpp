// Uses a little of each part that needs its headers, its libraries and its compiler options.
#include <iostream>
#include <string>

#include "tiny.hpp"

#if defined(USES_umbrella)
#include <pulse/pulse.hpp>
#endif
#ifdef USES_pictures
#include <pulse/frozen/picture_source.hpp>
#define USES_io
#define USES_encode
#define USES_data
#define USES_host
#endif
#ifdef USES_io
#include <nlohmann/json_fwd.hpp>
#include <zlib.h>
#include <pulse/io/png.hpp>
#endif
#ifdef USES_encode
#include <sentencepiece_processor.h>
#include <pulse/encode/tokenizer_text.hpp>
#endif
#ifdef USES_data
#include <pulse/data/jpeg.hpp>
#include <pulse/data/png.hpp>
#include <pulse/data/webp.hpp>
#endif
#if defined(USES_host) || defined(USES_compiled_host)
#include <pulse/onednn/backend.hpp>
#endif
#ifdef USES_glpk
#include <pulse/schedule/prove/glpk.hpp>
#endif
#ifdef USES_mpi
#include <pulse/mpi/session.hpp>
#endif

#ifdef USES_compiled
#include <pulse/hardware/device.hpp>
#include <pulse/partition/sequential.hpp>
#include <pulse/profile/analytic.hpp>
#ifndef PULSE_SEPARATE_COMPILATION
#error pulse::compiled does not say that it has the bodies
#endif
#endif
#if defined(USES_compiled_host) && !defined(PULSE_SEPARATE_HOST)
#error pulse::compiled_host does not say that it has the bodies
#endif
#if defined(USES_compiled_pictures) && !defined(PULSE_SEPARATE_PICTURES)
#error pulse::compiled_pictures does not say that it has the bodies
#endif

pulse::graph_view other_unit();
#ifdef USES_cuda
int scale_on_device();
#endif

namespace {

/// Whether the call reports its input as wrong.
template <class Call>
bool refuses(Call call) {
    try {
        call();
    } catch (const pulse::input_error&) { return true; }
    return false;
}

} // namespace

int main() {
#ifdef USES_io
    const pulse::io::picture grey{1, 1, 1, {0}};
    if (zlibVersion()[0] != '1' || pulse::io::encode_png(grey).substr(1, 3) != "PNG") { return 1; }
#endif
#ifdef USES_encode
    if (sentencepiece::SentencePieceProcessor{}.status().ok() || !pulse::encode::is_space(U'\u3000')) { return 1; }
#endif
#ifdef USES_data
    if (!refuses([] { static_cast<void>(pulse::data::jpeg_size({})); }) ||
        !refuses([] { static_cast<void>(pulse::data::png_size({})); }) ||
        !refuses([] { static_cast<void>(pulse::data::webp_size({})); })) {
        return 1;
    }
#endif
#ifdef USES_pictures
    if (!refuses([] { const pulse::frozen::picture_source none{{.data = "no such folder"}, {}}; })) { return 1; }
#endif
#ifdef USES_glpk
    if (glp_version()[0] < '5') { return 1; }
#endif
#ifdef USES_mpi
    int major = 0;
    int minor = 0;
    pulse::mpi::check(MPI_Get_version(&major, &minor), "MPI_Get_version");
    if (major < 3) { return 1; }
#endif
#ifdef USES_cuda
    if (scale_on_device() != 0) { return 1; }
#endif
#ifdef USES_compiled
    const auto costs = pulse::analytic_costs(pulse::graph_of<consumer::tiny>().view(), pulse::cpu_core, 1, 4);
    if (pulse::sequential_partition(costs, 2).stages.size() != 2) { return 1; }
#endif
#if defined(USES_host) || defined(USES_compiled_host)
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

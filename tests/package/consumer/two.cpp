#include "tiny.hpp"

#ifdef USES_io
#include <pulse/io/safetensors.hpp>
#endif
#ifdef USES_encode
#include <pulse/encode/tokenizer_folder.hpp>
#endif
#ifdef USES_data
#include <pulse/data/captioned_pictures.hpp>
#include <pulse/data/open_pictures.hpp>
#endif
#ifdef USES_host
#include <pulse/onednn/backend.hpp>
#endif
#ifdef USES_glpk
#include <pulse/schedule/prove/glpk.hpp>
#endif
#ifdef USES_mpi
#include <pulse/mpi/run_rank.hpp>
#endif

pulse::graph_view other_unit();

pulse::graph_view other_unit() {
    static constexpr auto graph = pulse::graph_of<consumer::tiny>();
    return graph.view();
}

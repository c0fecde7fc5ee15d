#include "block_library.cuh"

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/cuda/cublas/library.cuh>
#include <pulse/cuda/cublas/product.cuh>
#include <pulse/cuda/cudnn/choose_engine.cuh>
#include <pulse/cuda/cudnn/convolution.cuh>
#include <pulse/cuda/cudnn/engines.cuh>
#include <pulse/cuda/cudnn/ready_engine.cuh>
#include <pulse/cuda/engine_options.cuh>
#include <pulse/cuda/memory.cuh>

namespace pulse_bench {

namespace {

namespace cuda = pulse::cuda;
namespace cudnn = pulse::cuda::cudnn;
namespace cublas = pulse::cuda::cublas;
using tensors_of = block_tensors<__nv_bfloat16>;

struct convolution {
    cudnn::library dnn{};
    cudnn::ready_engine engine{};
    cuda::device_memory<std::byte> workspace{};
    cuda::device_memory<__nv_bfloat16> gradient{}; ///< of the weight
    layer_pass pass{};

    void run(const cudnn::ready_engine& which, const tensors_of& t, std::byte* room) const {
        using id = cudnn::convolution_graph::id;
        const bool forward = pass == layer_pass::forward;
        const bool of_weight = pass == layer_pass::backward_weight;
        const std::array<cudnn::ready_engine::binding, 3> bindings{
            {{id::x, pass == layer_pass::backward_input ? t.out[0].data() : t.in[0].data()},
             {id::weight, of_weight ? gradient.data() : t.in[1].data()},
             {id::y, forward     ? t.out[0].data()
                     : of_weight ? t.in[1].data()
                                 : t.in[0].data()}}};
        which.run(dnn.get(), bindings, room);
    }
};

struct product {
    cublas::library lt;
    cublas::prepared_product prepared;
    cublas::algorithm how{};
    cuda::device_memory<std::byte> workspace{};
    layer_pass pass{};

    void run(const cublas::algorithm& which, const tensors_of& t, std::byte* room, cudaStream_t stream) const {
        const bool of_weight = pass == layer_pass::backward_weight;
        const void* const a = of_weight ? t.in[0].data() : t.in[1].data();
        const void* const b = of_weight ? t.in[1].data() : t.in[0].data();
        void* const d = of_weight ? static_cast<void*>(t.sums[0].data()) : t.out[0].data();
        prepared.run(lt, which, a, b, d, nullptr, room, stream);
    }
};

} // namespace

library_call library_convolution(const pulse::conv2d_shape& s, int batch, layer_pass pass, cudaStream_t stream,
                                 const tensors_of& tensors) {
    const auto made = std::make_shared<convolution>();
    made->dnn.use(stream);
    made->pass = pass;
    const cudnn::convolution_pass which = pass == layer_pass::forward ? cudnn::convolution_pass::forward
                                          : pass == layer_pass::backward_input
                                              ? cudnn::convolution_pass::backward_input
                                              : cudnn::convolution_pass::backward_weight;
    const cudnn::convolution_graph graph{s, batch, which, cudnn::convolution_form::plain, CUDNN_DATA_BFLOAT16};
    if (pass == layer_pass::backward_weight) {
        made->gradient = cuda::device_memory<__nv_bfloat16>{static_cast<std::size_t>(s.weight_elements())};
    }
    using id = cudnn::convolution_graph::id;
    const std::vector<cudnn::trial_tensor> sizes{{id::x, 2 * batch * s.in_elements()},
                                                 {id::weight, 2 * s.weight_elements()},
                                                 {id::y, 2 * batch * s.out_elements()}};
    std::vector<cudnn::ready_engine> engines;
    std::int64_t workspace = 0;
    for (const int candidates : {0, 6}) {
        cuda::engine_options options;
        options.candidates = candidates;
        engines.push_back(cudnn::choose_engine(made->dnn, stream, cudnn::make_graph(graph, made->dnn.get()), {},
                                               options, cuda::device_key(), sizes, {})
                              .made);
        if (!engines.back()) { throw pulse::error("cuDNN has no engine for a convolution of the bench"); }
        workspace = std::max(workspace, engines.back().workspace_bytes());
    }
    made->workspace = cuda::device_memory<std::byte>{static_cast<std::size_t>(workspace)};
    const cuda::fastest_candidate best = cuda::fastest(
        stream, engines.size(), [&](std::size_t i) { made->run(engines[i], tensors, made->workspace.data()); });
    made->engine = std::move(engines.at(best.index));
    return [made](const tensors_of& t) { made->run(made->engine, t, made->workspace.data()); };
}

library_call library_product(const pulse::linear_shape& s, std::int64_t rows, layer_pass pass, cudaStream_t stream,
                             const tensors_of& tensors) {
    // cuBLASLt's matrices are column-major: a row here is a column there.
    const std::int64_t in = s.in_features;
    const std::int64_t out = s.out_features;
    cublas::product p{};
    p.type = p.type_d = CUDA_R_16BF;
    p.stride_a = in;
    if (pass == layer_pass::backward_weight) {
        p.rows = p.stride_d = in;
        p.columns = p.stride_b = out;
        p.depth = rows;
        p.transpose_b = p.adds = true;
        p.type_d = CUDA_R_32F;
    } else {
        const bool forward = pass == layer_pass::forward;
        p.transpose_a = forward;
        p.rows = p.stride_d = forward ? out : in;
        p.depth = p.stride_b = forward ? in : out;
        p.columns = rows;
    }
    const auto made =
        std::make_shared<product>(product{.lt = cublas::open_library(), .prepared = cublas::prepared_product{p}});
    made->pass = pass;
    const std::vector<cublas::algorithm> all = made->prepared.proposals(made->lt, std::int64_t{256} << 20, 8);
    std::int64_t workspace = 0;
    for (const cublas::algorithm& one : all) { workspace = std::max(workspace, one.workspace_bytes); }
    made->workspace = cuda::device_memory<std::byte>{static_cast<std::size_t>(workspace)};
    const cuda::fastest_candidate best = cuda::fastest(
        stream, all.size(), [&](std::size_t i) { made->run(all[i], tensors, made->workspace.data(), stream); });
    made->how = all.at(best.index);
    return [made, stream](const tensors_of& t) { made->run(made->how, t, made->workspace.data(), stream); };
}

} // namespace pulse_bench

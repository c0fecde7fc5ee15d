#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/cuda/cudnn/convolution_request.cuh>
#include <pulse/cuda/cudnn/engines.cuh>
#include <pulse/cuda/cudnn/ready_engine.cuh>
#include <pulse/cuda/precision.cuh>
#include <pulse/reference/backend.hpp>

#include <compare.hpp>
#include <drawn_shapes.hpp>

namespace engine_value_tests {

using namespace pulse;
using namespace pulse::cuda::cudnn;

namespace {

using test::doubles;
using id = convolution_graph::id;
using form = convolution_form;

/// Converts between the checkpoint's weight order, [out][in][taps], and cuDNN's, [out][taps][in].
doubles reordered(const doubles& weight, const conv2d_shape& s, bool to_checkpoint) {
    const auto taps = static_cast<std::size_t>(s.kernel * s.kernel);
    const auto channels = static_cast<std::size_t>(s.in_channels);
    doubles made(weight.size());
    for (std::size_t o = 0; o != static_cast<std::size_t>(s.out_channels); ++o) {
        for (std::size_t c = 0; c != channels; ++c) {
            for (std::size_t t = 0; t != taps; ++t) {
                const std::size_t plain = (o * channels + c) * taps + t;
                const std::size_t packed = (o * taps + t) * channels + c;
                (to_checkpoint ? made[plain] : made[packed]) = to_checkpoint ? weight[packed] : weight[plain];
            }
        }
    }
    return made;
}

/// The three tensors, the bias, and the summand of a form.
struct problem {
    doubles x{};
    doubles weight{};
    doubles y{};
    doubles bias{};
    doubles before{};
};

/// The expected result of the request; weights are in the checkpoint's order.
doubles result_of(const convolution_request& r, form how, const problem& p) {
    reference::backend<double> on{};
    const bool adds = how == form::scaled_add || how == form::bias_add;
    const bool biased = how == form::bias || how == form::bias_add;
    const into target = adds ? into::add : into::write;
    doubles made = p.before;
    switch (r.pass) {
    case convolution_pass::forward:
        on.conv2d(r.shape, r.batch, p.x.data(), p.weight.data(), biased ? p.bias.data() : nullptr, made.data(), target);
        break;
    case convolution_pass::backward_input:
        on.conv2d_backward_input(r.shape, r.batch, p.y.data(), p.weight.data(), made.data(), target);
        break;
    case convolution_pass::backward_weight: {
        if (!adds) { std::fill(made.begin(), made.end(), 0.0); }
        double* const none = nullptr;
        on.conv2d_backward_weight(r.shape, r.batch, p.x.data(), p.y.data(), made.data(), none);
        break;
    }
    }
    return made;
}

/// How often an engine was right and wrong, and its last wrong request.
struct record {
    int right{};
    int wrong{};
    std::string where{};
};

/// Runs a request on every engine that needs no compiler, in each of its forms.
template <class P>
void run_engines(library& dnn, const convolution_request& r, test::source& draw, std::map<std::string, record>& all) {
    using T = typename P::scalar;
    const conv2d_shape& s = r.shape;
    const problem drawn{draw.normal<T>(r.batch * s.in_elements()), draw.normal<T>(s.weight_elements()),
                        draw.normal<T>(r.batch * s.out_elements()), draw.normal<T>(s.out_channels),
                        draw.normal<T>(r.pass == convolution_pass::forward          ? r.batch * s.out_elements()
                                       : r.pass == convolution_pass::backward_input ? r.batch * s.in_elements()
                                                                                    : s.weight_elements())};
    const problem sizes{test::magnitudes(drawn.x), test::magnitudes(drawn.weight), test::magnitudes(drawn.y),
                        test::magnitudes(drawn.bias), test::magnitudes(drawn.before)};
    const bool of_weight = r.pass == convolution_pass::backward_weight;
    int ran = 0;
    for (const form how : forms_for(r)) {
        const doubles wanted = result_of(r, how, drawn);
        const doubles size = result_of(r, how, sizes);
        const descriptor graph = make_graph(graph_of_request(r, how), dnn.get());
        const engine_rules rules{
            .tensor_float = P::tensor_float || sizeof(T) < 4, .allow_run_time_compiled = false, .deterministic = true};
        for (const engine_config& one : engines_for(graph, {dnn.get(), {}}, rules)) {
            ready_engine engine;
            try {
                engine = ready_engine{{dnn.get(), {}}, one};
            } catch (const cudnn_error&) { continue; } // the next engine would be taken then
            const std::string json = engine.json();
            const std::size_t at = json.find("\"engineId\":");
            const std::string number = at == std::string::npos ? "?" : std::to_string(std::atoi(&json[at + 11]));
            const test::tensor<T> x(drawn.x);
            const test::tensor<T> weight(reordered(drawn.weight, s, false));
            const test::tensor<T> y(drawn.y);
            const test::tensor<T> bias(drawn.bias);
            const test::tensor<T> result(of_weight ? reordered(drawn.before, s, false) : drawn.before);
            const test::tensor<std::uint8_t> workspace(engine.workspace_bytes());
            const test::device_queue queue;
            const bool forward = r.pass == convolution_pass::forward;
            std::vector<ready_engine::binding> bindings{
                {id::x, r.pass == convolution_pass::backward_input ? result.data() : x.data()},
                {id::weight, of_weight ? result.data() : weight.data()},
                {id::y, forward ? result.data() : y.data()}};
            if (how == form::bias || how == form::bias_add) { bindings.push_back({id::bias, bias.data()}); }
            if (how == form::bias_add) { bindings.push_back({id::target, result.data()}); }
            dnn.use(queue.stream());
            ++ran;
            engine.run(dnn.get(), bindings, workspace.data());
            doubles got = result.download(queue);
            if (of_weight) { got = reordered(got, s, true); }
            // some engines truncate factors to TF32, others round them
            const double error = test::sum_error<P>(4096) + (P::tensor_float ? 1.0 / 1024 : 0.0);
            const double worst = test::worst_sum<T>(got, wanted, size, error);
            constexpr const char* passes[]{"forward", "input gradient", "weight gradient"};
            record& to = all[std::string{P::name} + ", " + passes[static_cast<int>(r.pass)] + ", form " +
                             std::to_string(static_cast<int>(how)) + ", " +
                             (s.pad_before == s.pad_after ? "even" : "uneven") + " padding, engine " + number];
            ++(worst < 1.0 ? to.right : to.wrong);
            if (worst >= 1.0) {
                to.where = std::to_string(s.in_channels) + " to " + std::to_string(s.out_channels) + ", " +
                           std::to_string(s.in_height) + "x" + std::to_string(s.in_width) + ", window " +
                           std::to_string(s.kernel) + ", stride " + std::to_string(s.stride) + ", padding " +
                           std::to_string(s.pad_before) + " " + std::to_string(s.pad_after) + ", batch " +
                           std::to_string(r.batch) + ": " + std::to_string(worst);
            }
        }
    }
    CHECK(ran != 0);
}

template <class P>
void run_all(const test::convolution_draw& draws, std::map<std::string, record>& all) {
    library dnn;
    test::source draw{draws.seed};
    std::vector<test::drawn_convolution> shapes = test::draw_convolutions(draws);
#ifdef __CUDACC__ // windows of real backbones, which take the emulation minutes
    for (const int channels : {8, 32, 64}) {
        for (const int size : {4, 8, 15}) {
            shapes.push_back({{channels, channels, size, size, 3, 1, 1, 1}, 2, 0, false, true, 0});
            shapes.push_back({{channels, 2 * channels, size, size, 3, 2, 1, 1}, 2, 0, true, true, 0});
            shapes.push_back({{channels, channels, size, size, 3, 2, 0, 1}, 1, 0, false, true, 0});
        }
    }
#endif
    for (const test::drawn_convolution& c : shapes) {
        if (c.shape.is_product()) { continue; }
        constexpr auto type = data_type<typename P::scalar>();
        const bool narrow = sizeof(typename P::scalar) < 4;
        for (const bool adds : {false, true}) {
            run_engines<P>(dnn, {c.shape, c.batch, convolution_pass::forward, type, adds, c.biased}, draw, all);
            const conv2d_shape even = evenly_padded(c.shape);
            run_engines<P>(dnn, {even, c.batch, convolution_pass::backward_input, type, adds, false}, draw, all);
            if (adds && narrow) { continue; }
            run_engines<P>(dnn, {even, c.batch, convolution_pass::backward_weight, type, adds, false}, draw, all);
        }
    }
}

} // namespace

TEST_CASE("every engine that needs no compiler computes what the reference means") {
    std::map<std::string, record> all;
    run_all<cuda::bf16>(test::bf16_convolutions, all);
    run_all<cuda::fp16>(test::fp16_convolutions, all);
    run_all<cuda::tf32>(test::tf32_convolutions, all);
    run_all<cuda::fp32>(test::fp32_convolutions, all);
    for (const auto& [what, seen] : all) {
        CHECK_MESSAGE(seen.wrong == 0,
                      what << ": wrong " << seen.wrong << " times, right " << seen.right << " times; " << seen.where);
    }
    REQUIRE(all.size() > 20);
}

} // namespace engine_value_tests

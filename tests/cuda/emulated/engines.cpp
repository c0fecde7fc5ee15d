#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <backend_trial.hpp>
#include <emulated/cublas_lt.hpp>
#include <emulated/cudnn.hpp>
#include <emulated/runtime.hpp>

namespace cuda = pulse::cuda;
using pulse::conv2d_shape;
using pulse::into;
using pulse::linear_shape;
using namespace pulse::test;
namespace dnn = emulated_cuda::cudnn;
namespace lt = emulated_cuda::cublas_lt;

namespace {

/// The path of a directory that does not exist yet; whatever is there is removed with this object.
struct scratch_directory {
    scratch_directory() :
        path{(std::filesystem::temp_directory_path() / ("pulse-engines-" + std::to_string(std::random_device{}())))
                 .string()} {}
    scratch_directory(const scratch_directory&) = delete;
    scratch_directory& operator=(const scratch_directory&) = delete;
    ~scratch_directory() {
        std::error_code ignored;
        std::filesystem::remove_all(path, ignored);
    }
    std::string path;
};

std::string content_of(const std::filesystem::path& path) {
    std::ifstream file{path, std::ios::binary};
    return {std::istreambuf_iterator<char>{file}, {}};
}
void write(const std::filesystem::path& path, const std::string& content) {
    std::ofstream{path, std::ios::binary} << content;
}

cuda::engine_options kept_in(const std::string& directory) {
    cuda::engine_options options;
    options.store = cuda::engine_store{directory};
    return options;
}

constexpr conv2d_shape window{8, 6, 5, 4, 3, 1, 1, 1};
constexpr linear_shape matrix{12, 10};
constexpr int batch = 2;

/// Two convolutions (with a bias, and adding) and a linear layer, with fixed values.
template <class P>
struct program {
    using T = typename P::scalar;

    explicit program(unsigned seed) : draw{seed} {}

    source draw;
    tensor<T> x{draw.normal<T>(batch * window.in_elements())};
    tensor<T> weight{draw.normal<T>(window.weight_elements())};
    tensor<T> bias{draw.normal<T>(window.out_channels)};
    tensor<T> y{batch * window.out_elements()};
    tensor<T> rows{draw.normal<T>(7 * matrix.in_features)};
    tensor<T> other{draw.normal<T>(std::int64_t{matrix.in_features} * matrix.out_features)};
    tensor<T> z{7 * matrix.out_features};

    void run(cuda::backend<P>& on) const {
        on.conv2d(window, batch, x.data(), weight.data(), bias.data(), y.data(), into::write);
        on.conv2d(window, batch, x.data(), weight.data(), bias.data(), y.data(), into::add);
        on.linear(matrix, 7, rows.data(), other.data(), nullptr, z.data(), into::write);
    }
    [[nodiscard]] doubles results(cuda::backend<P>& on) const {
        run(on);
        return read(on);
    }
    [[nodiscard]] doubles read(const cuda::backend<P>& on) const {
        on.synchronize();
        const device_queue waiting;
        doubles all = y.download(waiting);
        const doubles more = z.download(waiting);
        all.insert(all.end(), more.begin(), more.end());
        return all;
    }
};

} // namespace

TEST_CASE("engine store: what is kept is found, what is damaged or of another key is not") {
    const scratch_directory directory;
    const cuda::engine_store store{directory.path};
    CHECK_FALSE(store.find("a graph"));
    const std::string text = "an engine\nof two lines, with a zero: " + std::string(1, '\0') + " and no end";
    store.keep("a graph", text);
    store.keep("another", "x");
    REQUIRE(store.find("a graph"));
    CHECK(*store.find("a graph") == text);
    CHECK(*store.find("another") == "x");
    store.keep("a graph", "");
    CHECK(*store.find("a graph") == "");
    store.keep("a graph", text);

    const std::string path = store.path_of("a graph");
    const std::string whole = content_of(path);
    std::mt19937 engine{5};
    for (int i = 0; i != 24; ++i) { // truncated, or with one byte changed, all over the text
        const std::size_t at = std::uniform_int_distribution<std::size_t>{0, whole.size() - 1}(engine);
        std::string damaged = whole;
        if (i % 2 == 0) {
            damaged.resize(at);
        } else {
            damaged[at] = static_cast<char>(damaged[at] ^ (1 << (i % 8)));
        }
        write(path, damaged);
        CHECK_FALSE(store.find("a graph"));
    }
    // another key's file under this one's name
    std::filesystem::copy_file(store.path_of("another"), path, std::filesystem::copy_options::overwrite_existing);
    CHECK_FALSE(store.find("a graph"));
    for (const auto& entry : std::filesystem::directory_iterator{directory.path}) {
        CHECK(entry.path().extension() == ".engine"); // no half-written file is left
    }
    // neither a directory that cannot be created nor an empty path is an error
    const cuda::engine_store nowhere{path + "/below a file"};
    nowhere.keep("a graph", text);
    CHECK_FALSE(nowhere.find("a graph"));
    cuda::engine_store{}.keep("a graph", text);
    CHECK_FALSE(cuda::engine_store{}.find("a graph"));
}

TEST_CASE("engines are chosen once, kept between runs, and chosen anew where they are damaged") {
    const scratch_directory directory;
    const program<cuda::bf16> work{1};
    doubles first;
    {
        const std::int64_t planned = dnn::planned();
        const std::int64_t asked = lt::heuristic_calls();
        cuda::backend<cuda::bf16> on{kept_in(directory.path)};
        first = work.results(on);
        CHECK(dnn::planned() == planned + 2);
        CHECK(lt::heuristic_calls() == asked + 1);
        work.run(on);
        CHECK(dnn::planned() == planned + 2);
        CHECK(lt::heuristic_calls() == asked + 1);
    }
    const auto again = [&](bool kept) {
        const std::int64_t planned = dnn::planned();
        const std::int64_t restored = dnn::restored();
        const std::int64_t asked = lt::heuristic_calls();
        cuda::backend<cuda::bf16> on{kept_in(directory.path)};
        CHECK(work.results(on) == first);
        CHECK(dnn::planned() == planned + (kept ? 0 : 2));
        CHECK(dnn::restored() == restored + (kept ? 2 : 0));
        CHECK(lt::heuristic_calls() == asked + (kept ? 0 : 1));
    };
    again(true);
    for (const auto& entry : std::filesystem::directory_iterator{directory.path}) {
        write(entry.path(), content_of(entry.path()).substr(3));
    }
    again(false);
    again(true);
    // another precision, or another limit, needs another engine
    const std::int64_t planned = dnn::planned();
    cuda::engine_options tight = kept_in(directory.path);
    tight.workspace_limit = 0;
    cuda::backend<cuda::bf16> on{tight};
    CHECK(work.results(on) == first);
    CHECK(dnn::planned() > planned);
}

TEST_CASE("an engine is never given more workspace than the limit, nor one that the policy forbids") {
    const program<cuda::fp32> work{2};
    cuda::engine_options options;
    options.store = cuda::engine_store{};
    const std::int64_t rounding = dnn::executed(0);
    const std::int64_t sharing = dnn::executed(3);
    const std::int64_t with_workspace = dnn::executed(1);
    cuda::backend<cuda::fp32> on{options};
    const doubles wanted = work.results(on);
    CHECK(dnn::executed(0) == rounding); // it rounds to TF32
    CHECK(dnn::executed(3) == sharing);  // it is Winograd's
    CHECK(dnn::executed(1) > with_workspace);

    options.workspace_limit = 100;
    const std::int64_t before = dnn::executed(1) + lt::executed(1);
    cuda::backend<cuda::fp32> tight{options};
    const doubles without = work.results(tight); // another algorithm rounds differently
    REQUIRE(without.size() == wanted.size());
    double worst = 0.0;
    for (std::size_t i = 0; i != wanted.size(); ++i) { worst = std::max(worst, std::abs(without[i] - wanted[i])); }
    CHECK(worst < 1e-4);
    CHECK(dnn::executed(1) + lt::executed(1) == before);

    const program<cuda::tf32> same{2};
    cuda::backend<cuda::tf32> loose{options};
    CHECK(same.results(loose) != wanted);
    CHECK(dnn::executed(0) > rounding);

    options.candidates = 17;
    CHECK_THROWS_WITH_AS((cuda::backend<cuda::fp32>{options}),
                         "engine_options: candidates must be from 0 to 16, not 17", pulse::input_error);
    options.candidates = 0;
    options.workspace_limit = -1;
    CHECK_THROWS_AS((cuda::backend<cuda::fp32>{options}), pulse::input_error);
}

TEST_CASE("a program that ran once is captured and replayed, and sees weights that changed since") {
    const program<cuda::bf16> work{3};
    cuda::engine_options options;
    options.store = cuda::engine_store{};
    cuda::backend<cuda::bf16> on{options};
    const auto begin = [&] {
        cuda::check(cudaStreamBeginCapture(on.stream(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    };
    cudaGraph_t graph{};
    const auto end_refused = [&] {
        static_cast<void>(cudaStreamEndCapture(on.stream(), &graph));
        if (graph != nullptr) { cuda::check(cudaGraphDestroy(graph), "cudaGraphDestroy"); }
    };
    begin();
    CHECK_THROWS_AS(work.run(on), pulse::input_error); // it would have to create an engine
    end_refused();

    const doubles wanted = work.results(on);
    const std::int64_t bytes = on.scratch_bytes();
    CHECK(bytes > 0);
    begin();
    work.run(on);
    cuda::check(cudaStreamEndCapture(on.stream(), &graph), "cudaStreamEndCapture");
    cudaGraphExec_t replay{};
    cuda::check(cudaGraphInstantiate(&replay, graph, 0), "cudaGraphInstantiate");
    cuda::check(cudaGraphDestroy(graph), "cudaGraphDestroy");
    const auto launch = [&] {
        cuda::check(cudaGraphLaunch(replay, on.stream()), "cudaGraphLaunch");
        return work.read(on);
    };
    CHECK(launch() == wanted);

    source draw{4};
    const doubles fresh = draw.normal<__nv_bfloat16>(window.weight_elements());
    const tensor<__nv_bfloat16> changed{fresh};
    cuda::copy_async(work.weight.data(), changed.data(), fresh.size(), on.stream());
    const doubles replayed = launch();
    CHECK(replayed != wanted);
    CHECK(work.results(on) == replayed);
    CHECK(on.scratch_bytes() == bytes);

    // a shape that needs more scratch than any before
    begin();
    CHECK_THROWS_AS(on.sum_rows(1 << 20, 8192, work.x.data(), nullptr), pulse::input_error);
    end_refused();
    cuda::check(cudaGraphExecDestroy(replay), "cudaGraphExecDestroy");
}

TEST_CASE("a convolution's weights are used where they lie, and gradients in float added there") {
    const program<cuda::fp32> work{6};
    const program<cuda::bf16> narrow{6};
    const tensor<float> gradient(doubles(static_cast<std::size_t>(window.weight_elements())));
    cuda::engine_options options;
    options.store = cuda::engine_store{};
    options.workspace_limit = 0;
    const auto kernels = [&](const auto& of, auto& on) {
        const std::int64_t before = emulated_cuda::executed_kernels();
        on.conv2d(window, batch, of.x.data(), of.weight.data(), of.bias.data(), of.y.data(), into::write);
        on.conv2d_backward_input(window, batch, of.y.data(), of.weight.data(), of.x.data(), into::write);
        on.conv2d_backward_weight(window, batch, of.x.data(), of.y.data(), gradient.data(), nullptr);
        on.synchronize();
        return emulated_cuda::executed_kernels() - before;
    };
    cuda::backend<cuda::fp32> on{options};
    CHECK(kernels(work, on) == 3);
    CHECK(on.scratch_bytes() == 0); // any copy would need scratch
    cuda::backend<cuda::bf16> in_16_bits{options};
    CHECK(kernels(narrow, in_16_bits) == 4); // the gradient is rounded before it is added
    CHECK(in_16_bits.scratch_bytes() == 2 * window.weight_elements() + 160); // rounded up to a multiple of 256
}

TEST_CASE("what cuDNN does not fuse is done beside it") {
    cuda::engine_options options;
    options.store = cuda::engine_store{};
    dnn::set_fused(false);
    backend_trial<cuda::fp32> trial{8, options};
    trial.offset = 1;
    const auto x = trial.draw.normal<float>(batch * window.in_elements());
    const auto w = trial.draw.normal<float>(window.weight_elements());
    const auto b = trial.draw.normal<float>(window.out_channels);
    for (const bool adds : {false, true}) {
        trial.check_sums<float>({x, w, b}, batch * window.out_elements(), adds, trial.sum_error(72),
                                [&](auto& on, const auto& in, auto* y) {
                                    on.conv2d(window, batch, in[0], in[1], in[2], y, adds ? into::add : into::write);
                                });
    }
    // the bias of all samples at once
    const tensor<float> image(x);
    const tensor<float> weight(w);
    const tensor<float> bias(b);
    const tensor<float> y(batch * window.out_elements());
    const std::int64_t kernels = emulated_cuda::executed_kernels();
    trial.side.on.conv2d(window, batch, image.data(), weight.data(), bias.data(), y.data(), into::write);
    trial.side.on.synchronize();
    CHECK(emulated_cuda::executed_kernels() == kernels + 2);
    dnn::set_fused(true);
}

TEST_CASE("bias gradients come from a kernel where cuBLASLt does not sum them") {
    lt::set_bias_gradients_supported(false);
    cuda::engine_options options;
    options.store = cuda::engine_store{};
    backend_trial<cuda::bf16> trial{7, options};
    const auto x = trial.draw.normal<__nv_bfloat16>(9 * matrix.in_features);
    const auto dy = trial.draw.normal<__nv_bfloat16>(9 * matrix.out_features);
    const std::int64_t weights = std::int64_t{matrix.in_features} * matrix.out_features;
    trial.check_sums<float>({x, dy}, weights + matrix.out_features, true, trial.sum_error(9),
                            [&](auto& on, const auto& in, auto* dw) {
                                on.linear_backward_weight(matrix, 9, in[0], in[1], dw, dw + weights);
                            });
    lt::set_bias_gradients_supported(true);
}

TEST_CASE("shapes that make no sense are refused by name") {
    cuda::engine_options options;
    options.store = cuda::engine_store{};
    cuda::backend<cuda::fp32> on{options};
    float* const p = nullptr;
    CHECK_THROWS_WITH_AS(on.conv2d({3, 0, 4, 4}, 1, p, p, p, p, into::write),
                         "pulse: conv2d: invalid convolution: 3x4x4 to 0x4x4, kernel 3, padding 1 and 1, stride 1, "
                         "batch 1",
                         pulse::input_error);
    CHECK_THROWS_WITH_AS(on.conv2d_pair({3, 2, 4, 4}, 3, 1, p, p, p, p, p, into::write),
                         "pulse: conv2d_pair: second source must have 0 to 2 channels, not 3", pulse::input_error);
    CHECK_THROWS_WITH_AS(on.linear({3, 2}, 0, p, p, p, p, into::write),
                         "pulse: linear: 0 rows, 3 to 2 features; each must be at least 1", pulse::input_error);
}

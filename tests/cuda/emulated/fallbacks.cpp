#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <support/stderr_text.hpp>

#include <backend_trial.hpp>
#include <emulated/cublas_lt.hpp>
#include <emulated/cudnn.hpp>

namespace cuda = pulse::cuda;
using pulse::attention_shape;
using pulse::conv2d_shape;
using pulse::into;
using pulse::linear_shape;
using namespace pulse::test;
namespace dnn = emulated_cuda::cudnn;
namespace lt = emulated_cuda::cublas_lt;

namespace {

/// Emulates a missing compiler for the lifetime of this object.
struct lacking {
    explicit lacking(dnn::compiler found) { dnn::set_compiler(found); }
    lacking(const lacking&) = delete;
    lacking& operator=(const lacking&) = delete;
    ~lacking() { dnn::set_compiler(dnn::compiler::whole); }
};

cuda::engine_options keeping_nothing() {
    cuda::engine_options options;
    options.store = cuda::engine_store{};
    return options;
}

} // namespace

TEST_CASE("attention that cuDNN cannot make ready is pulse's: said once, and in the report") {
    const attention_shape s{9, 2, 40};
    const attention_shape other{8, 2, 40, 5};
    for (const dnn::compiler found : {dnn::compiler::none, dnn::compiler::no_builtins, dnn::compiler::whole}) {
        CAPTURE(static_cast<int>(found));
        const lacking some{found};
        const stderr_text said;
        const device_queue queue;
        cuda::attentions<cuda::bf16> all({.cudnn_forward = true, .cudnn_backward = true}, keeping_nothing());
        using pass = cuda::cudnn::attention_pass;
        const bool lacks = found != dnn::compiler::whole;
        for (const pass which : {pass::forward, pass::backward}) {
            for (const attention_shape& one : {s, other}) {
                CHECK(all.engine_of(queue.stream(), which, one, 1) ==
                      (lacks ? cuda::attention_engine::tensor_cores : cuda::attention_engine::cudnn));
            }
        }
        // a missing engine, and one that a rule excludes, show in the report only
        CHECK(all.engine_of(queue.stream(), pass::backward, {9, 2, 136}, 1) == cuda::attention_engine::tensor_cores);
        CHECK(all.engine_of(queue.stream(), pass::backward, {9, 2, 40, 192}, 1) ==
              cuda::attention_engine::tensor_cores);
        CHECK(said.count("\n") == (lacks ? 1 : 0));
        CHECK(said.count("libnvrtc-builtins") == (lacks ? 1 : 0));
        const std::string report = all.report();
        CAPTURE(report);
        const auto line = [&](const std::string& of) {
            const std::size_t at = report.find(of);
            REQUIRE(at != std::string::npos);
            return report.substr(at, report.find('\n', at) - at);
        };
        const std::string forward = line("forward, batch 1, 9 tokens to 9, 2 heads of 40");
        CHECK((forward.find("libnvrtc-builtins") != std::string::npos) == lacks);
        CHECK((forward.find("COMPILATION_FAILED") != std::string::npos) == (found == dnn::compiler::no_builtins));
        if (!lacks) { CHECK(line("heads of 136").find("no engine") != std::string::npos); }
        CHECK(line("to 192").find("NaN") != std::string::npos);
    }
}

TEST_CASE("an error over an engine that is not there says why the first one was refused") {
    const conv2d_shape s{8, 6, 5, 4, 3, 1, 1, 1};
    backend_trial<cuda::bf16> trial{4, keeping_nothing()};
    const tensor<__nv_bfloat16> x(s.in_elements());
    const tensor<__nv_bfloat16> w(s.weight_elements());
    dnn::set_plans_refused(true);
    CHECK_THROWS_WITH_AS(trial.side.on.conv2d(s, 1, x.data(), w.data(), nullptr, x.data(), into::write),
                         "cuDNN has no engine for a convolution from 8 to 6 channels of 5x4, window 3, stride 1, "
                         "batch 1: its first engine was refused: cuDNN: cudnnBackendFinalize of execution plan: "
                         "CUDNN_STATUS_EXECUTION_FAILED: emulated: no plan is made ready",
                         pulse::error);
    dnn::set_plans_refused(false);
    cuda::engine_options tight = keeping_nothing();
    tight.workspace_limit = 0;
    CHECK_NOTHROW(
        backend_trial<cuda::bf16>(5, tight).side.on.conv2d(s, 1, x.data(), w.data(), nullptr, x.data(), into::write));
}

TEST_CASE("a bias is added by a kernel where cuBLASLt has no epilogue for the alignment") {
    const struct choosy {
        choosy() { lt::set_bias_alignment(16); }
        ~choosy() { lt::set_bias_alignment(0); }
    } some{};
    backend_trial<cuda::bf16> trial{6, keeping_nothing()};
    const linear_shape s{12, 10};
    const auto x = trial.draw.normal<__nv_bfloat16>(9 * s.in_features);
    const auto w = trial.draw.normal<__nv_bfloat16>(std::int64_t{s.in_features} * s.out_features);
    const auto b = trial.draw.normal<__nv_bfloat16>(s.out_features);
    for (const int offset : {0, 1, 2}) {
        for (const bool adds : {false, true}) {
            CAPTURE(offset);
            CAPTURE(adds);
            trial.offset = offset;
            trial.check_sums<__nv_bfloat16>({x, w, b}, 9 * s.out_features, adds, trial.sum_error(s.in_features),
                                            [&](auto& on, const auto& in, auto* y) {
                                                on.linear(s, 9, in[0], in[1], in[2], y, adds ? into::add : into::write);
                                            });
        }
    }
}

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <fstream>

#include <doctest/doctest.h>

#include <pulse/runtime/backend.hpp>

#include <support/skip.hpp>

#include "folders.hpp"

using namespace pulse;
using namespace pulse::test;

TEST_CASE("rotary positions of a grid of any shape are those of diffusers' pipeline for Hunyuan-DiT") {
    constexpr std::array<rotary_shape, 8> grids{{{64, 64, 1, 88, 32.0},
                                                 {32, 32, 1, 8, 32.0},
                                                 {40, 24, 1, 16, 32.0},
                                                 {24, 40, 1, 16, 32.0},
                                                 {48, 80, 1, 88, 32.0},
                                                 {7, 3, 1, 8, 4.0},
                                                 {1, 5, 1, 8, 4.0},
                                                 {96, 33, 1, 12, 32.0}}};
    const scratch folder;
    std::ofstream list{folder.path / "grids"};
    for (const rotary_shape& one : grids) {
        list << one.rows << ' ' << one.columns << ' ' << one.head_size << ' ' << one.span << '\n';
    }
    list.close();
    if (!run_python(PULSE_TEST_DIFFUSERS_ROTARY, PULSE_TEST_PYTHON_NEWEST, {folder.path})) {
        pulse::test::skip("no torch and diffusers");
        return;
    }
    std::ifstream out{folder.path / "out", std::ios::binary};
    for (const rotary_shape& one : grids) {
        CAPTURE(one.rows);
        CAPTURE(one.columns);
        double worst = 0.0;
        for (double (*const wave)(double) :
             {+[](double x) { return std::cos(x); }, +[](double x) { return std::sin(x); }}) {
            for (int token = 0; token != one.tokens(); ++token) {
                for (int feature = 0; feature != one.head_size; ++feature) {
                    float found = 0;
                    out.read(reinterpret_cast<char*>(&found), sizeof found);
                    worst = std::max(worst, std::abs(wave(one.angle(token, feature / 2)) - static_cast<double>(found)));
                }
            }
        }
        // diffusers computes angles, which reach the span, in float.
        CHECK(worst < one.span * 4e-7);
    }
    CHECK(out.good());
    CHECK(out.peek() == std::ifstream::traits_type::eof());
}

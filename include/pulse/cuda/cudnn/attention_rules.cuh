#pragma once

#include <cstddef>
#include <string_view>

#include <pulse/cuda/cudnn/attention.cuh>
#include <pulse/runtime/backend.hpp>

namespace pulse::cuda::cudnn {

/// The known fault of a pass of cuDNN's attention, for which an engine may be proposed all the same, worded for a
/// report; empty if there is none. `sm` is 10 times the compute capability's major part plus the minor part, `version`
/// the value of cudnnGetVersion().
///
/// Covers only faults of attention without mask, bias and dropout. Sources, in NVIDIA/cudnn-frontend (1.23) and
/// pytorch/pytorch:
/// - the forward pass is a single operation from 9.13.1 on: cudnn-frontend, sdpa_support_surface.h;
/// - one query: gradients of keys and values are NaN on sm_90 where scores are far below 0, up to 9.26 at least
///   (cudnn-frontend issue 1072); results are wrong on sm_100 from 9.19 on (pytorch issue 193893, pull request 194927);
///   one query and one key have no gradients (cudnn-frontend, scaled_dot_product_flash_attention.h);
/// - one key: pytorch, sdp_utils.cpp;
/// - up to 9.15.0 gradients need a padding mask if the keys do not fill tiles of 128
///   (scaled_dot_product_flash_attention.h, cudnn-frontend issue 160);
/// - before 9.26 the kernel of sm_90 does not mask half a tile of 128 keys, and gradients of queries whose log-sum-exp
///   is below -88.7 are NaN (cudnn-frontend pull request 628, pytorch issue 196678, pull request 196861).
[[nodiscard]] constexpr std::string_view attention_fault(attention_pass pass, const attention_shape& s, int sm,
                                                         std::size_t version) noexcept {
    constexpr int tile = 128; // keys that a block of cuDNN's kernels processes at once
    if (version < 91301) { return "before 9.13.1 cuDNN has no single attention operation"; }
    if (s.tokens == 1) { return "attention of one query may be wrong, or its gradients NaN"; }
    if (s.keys() == 1) { return "attention to one key is not supported"; }
    if (pass == attention_pass::forward) { return {}; }
    if (version <= 91500 && s.keys() % tile != 0) {
        return "up to 9.15.0 gradients are wrong where the number of keys is not a multiple of 128";
    }
    if (version < 92600 && sm / 10 == 9 && s.keys() % tile == tile / 2) {
        return "before 9.26 gradients may be NaN on sm_90 where the number of keys is 64 more than a multiple of 128";
    }
    return {};
}

} // namespace pulse::cuda::cudnn

#include <pulse/zoo/stable_diffusion.hpp>

#include "blocks_count.hpp"
#include "count_step.hpp"

namespace pulse_bench {

namespace {

/// The config of sd21 for 64x64 latents of 512-pixel images.
[[nodiscard]] consteval pulse::unet_config of_512_pixels() {
    pulse::unet_config of = pulse::sd21::config;
    of.sample_size = 64;
    return of;
}
struct sd21_512 : pulse::unet<of_512_pixels()> {};

} // namespace

counted_step count_sd21_512(int batch, const card& on) { return count_step<sd21_512>(batch, on); }
counted_step count_sd21_768(int batch, const card& on) { return count_step<pulse::sd21>(batch, on); }

} // namespace pulse_bench

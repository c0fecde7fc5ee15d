#include "blocks_count.hpp"
#include "count_step.hpp"
#include "small_unet.hpp"

namespace pulse_bench {

counted_step count_small(int batch, const card& on) { return count_step<small>(batch, on); }

} // namespace pulse_bench

#include <pulse/zoo/sdxl.hpp>

#include "blocks_count.hpp"
#include "count_step.hpp"

namespace pulse_bench {

counted_step count_sdxl(int batch, const card& on) { return count_step<pulse::sdxl>(batch, on); }

} // namespace pulse_bench

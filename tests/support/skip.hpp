#pragma once

namespace pulse::test {

/// Says that this case cannot run here; ctest reports it as skipped unless a check in it failed. Return after it.
void skip(const char* reason);

} // namespace pulse::test

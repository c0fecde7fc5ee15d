#pragma once

namespace pulse::test {

/// Reports that this case cannot run here; ctest shows it as skipped unless one of its checks failed. Return after it.
void skip(const char* reason);

} // namespace pulse::test

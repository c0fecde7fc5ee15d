#pragma once

namespace pulse::test {

/// Switches counting of operator new, of all threads, on (from zero) or off; returns how many there were so far.
int count_allocations(bool on);

/// Makes every operator new of the calling thread throw std::bad_alloc, or ends that.
void refuse_allocations(bool on);

} // namespace pulse::test

#pragma once

namespace pulse::test {

/// Turns the counting of operator new, over all threads, on (from zero) or off; returns the count so far.
int count_allocations(bool on);

/// Makes every operator new of the calling thread throw std::bad_alloc while `on`.
void refuse_allocations(bool on);

} // namespace pulse::test

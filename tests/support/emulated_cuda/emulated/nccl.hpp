#pragma once

/// NCCL's point-to-point calls between threads of one process, or between processes, over the emulated streams.
///
/// Ranks are processes where PULSE_EMULATED_NCCL names a folder: ids are folders below it, and messages files in them.
/// The device of such a process goes on by itself, as a thread, and a message of a process that has died is a remote
/// error.
///
/// A group is one operation of its stream: it starts when all before it in the stream is done, and is done when every
/// message of it is over. It runs in rounds, one after the other, as a kernel of NCCL does: the k-th message to each
/// peer and the k-th from it are of round k. A message goes over when the rounds of both its sides have started.
/// Messages of a pair of ranks are matched in the order of the calls, and the memory of both sides is registered with
/// their communicator, or that of neither: else the stream fails, where NCCL's results are undefined. So a program that
/// would hang in NCCL does not end here: the call that waits gets cudaErrorUnknown where the groups wait for each other
/// in a circle. Communicators are as those that do not block: init and split are in progress until every rank has come.
/// An abort marks its communicator and then waits for all that stands before the last group of it in its stream, as
/// NCCL does; after 10 s it fails.
namespace emulated_nccl {

/// The next call of that many of ncclGroupEnd, of any rank, fails. For tests of errors.
void fail_group_after(int groups);
/// Registered blocks of memory that were not given back, and communicators that live.
[[nodiscard]] int registered_blocks();
[[nodiscard]] int communicators();
/// Groups that were started with more than one message.
[[nodiscard]] int groups_of_many();
/// Groups that were started by communicators of that many ranks, with any number of messages.
[[nodiscard]] int groups_among(int ranks);
/// Aborts that have failed: what they waited for did not end.
[[nodiscard]] int hung_aborts();
/// Whether ncclMemAlloc gives memory.
void allow_memory(bool allowed);

} // namespace emulated_nccl

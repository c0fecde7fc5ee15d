#pragma once

/// NCCL's point-to-point calls between threads of one process, or between processes, over the emulated streams.
///
/// If PULSE_EMULATED_NCCL names a folder, ranks are processes: ids are folders below it, and messages files in them.
/// The device of such a process is a thread that runs by itself, and a message to or from a process that died is a
/// remote error.
///
/// A group is one operation of its stream: it starts when the stream reaches it, and completes when all its messages
/// have. Like a NCCL kernel, it runs in rounds, one after the other: the k-th message to each peer and the k-th from it
/// belong to round k. A message transfers when the rounds of both its sides have started. Messages of a pair of ranks
/// match in call order, and both sides' memory must be registered with their communicators, or neither's: otherwise the
/// stream fails, where NCCL's results are undefined. So a program that would hang in NCCL does not complete here
/// either: the waiting call gets cudaErrorUnknown if groups wait for each other in a circle. Communicators are
/// non-blocking: init and split are in progress until every rank has joined. An abort marks its communicator and then,
/// as in NCCL, waits for everything up to the communicator's last group in its stream; after 10 s it fails.
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

#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include <pulse/checkpoint/sharded.hpp>
#include <pulse/threads/transport.hpp>

#include <io/scratch.hpp>
#include <support/single_checkpoint.hpp>

#include "checkpoint_world.hpp"

namespace sharded_test {

using namespace pulse::train;
using pulse::test::bytes_of;
using pulse::test::named_tensor;
using pulse::test::rank_state;
using pulse::test::save_single;
using pulse::test::world_shape;
using pulse::threads::run_ranks;
namespace fs = std::filesystem;

/// Saves one version from all ranks; returns every rank's result.
inline std::vector<saved_checkpoint> save(const checkpoint_place& place, const std::vector<pulse::parameter>& model,
                                          const world_shape& shape, std::uint64_t version) {
    std::vector<saved_checkpoint> told(static_cast<std::size_t>(shape.ranks()));
    run_ranks(shape.ranks(), {}, [&](pulse::threads::transport& transport) {
        sharded_checkpoints<pulse::test::unsynced_disk> writer{place};
        told[static_cast<std::size_t>(transport.rank())] =
            pulse::test::save_version(writer, transport, model, shape, version);
    });
    return told;
}

inline std::set<std::string> names_in(const fs::path& folder) {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator{folder}) { names.insert(entry.path().filename().string()); }
    return names;
}

/// Replaces a file: overwriting an existing one waits for the disk on some file systems.
inline void replace(const fs::path& path, const std::string& bytes) {
    fs::remove(path);
    pulse::test::put(path, bytes);
}

inline const std::vector<pulse::parameter> two_tensors{{pulse::label{"a.weight"}, {3, 4}, 2},
                                                       {pulse::label{"a.bias"}, {5}, 1}};

} // namespace sharded_test

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include <pulse/checkpoint/folder.hpp>
#include <pulse/checkpoint/reader.hpp>
#include <pulse/checkpoint/sharded.hpp>
#include <pulse/core/error.hpp>
#include <pulse/io/disk.hpp>
#include <pulse/threads/transport.hpp>

#include <io/scratch.hpp>

#include "checkpoint_world.hpp"

namespace crash_test {

using namespace pulse::train;
using pulse::test::world_shape;
using pulse::threads::run_ranks;
namespace fs = std::filesystem;

/// Thrown where the process dies; nothing in it may catch this.
struct crash {};

/// A disk that counts its operations and stops at one of them. It tracks what a power loss may undo: contents of files
/// that were not synced, and names that appeared or vanished in folders that were not synced.
class mortal_machine {
public:
    enum class end : std::uint8_t { dies, fails };

    mortal_machine(end how, int at, std::uint64_t seed, fs::path graves) :
        how_{how}, left_{at}, draw_{seed}, graves_{std::move(graves)} {}

    [[nodiscard]] int operations() const { return done_; }
    [[nodiscard]] bool ended() const { return left_ < 0; }

    /// Runs one operation, unless it is the one at which the machine ends.
    template <class Operation>
    auto operate(const fs::path& path, const Operation& operation) {
        const std::lock_guard lock{mutex_};
        if (left_ < 0 && how_ == end::dies) { throw crash{}; }
        if (left_-- == 0) {
            if (how_ == end::dies) {
                operation(true);
                throw crash{};
            }
            throw pulse::input_error("cannot do operation " + std::to_string(done_) + " on '" + path.string() + "'");
        }
        ++done_;
        return operation(false);
    }

    /// Records a name that appeared or vanished; `undo` reverts that.
    void changed(const fs::path& folder, std::function<void()> undo) { names_.push_back({folder, std::move(undo)}); }
    void synced_folder(const fs::path& folder) {
        std::erase_if(names_, [&](const change& c) { return c.folder == folder; });
    }
    void written(const fs::path& file) { unsynced_.emplace(file, 0); }
    void synced(const fs::path& file) { unsynced_.erase(file); }
    void renamed(const fs::path& from, const fs::path& to) {
        if (unsynced_.erase(from) != 0) { unsynced_.emplace(to, 0); }
    }
    [[nodiscard]] fs::path grave() { return graves_ / std::to_string(buried_++); }
    [[nodiscard]] std::size_t some(std::size_t most) { return static_cast<std::size_t>(draw_() % (most + 1)); }

    /// Randomly loses each unsynced change.
    void lose_power() {
        std::error_code unused;
        for (const auto& [file, length] : unsynced_) {
            if (fs::exists(file, unused)) { fs::resize_file(file, some(fs::file_size(file))); }
        }
        for (auto at = names_.rbegin(); at != names_.rend(); ++at) {
            if (draw_() % 2 == 0) { at->undo(); }
        }
    }

private:
    struct change {
        fs::path folder;
        std::function<void()> undo;
    };

    std::mutex mutex_{};
    end how_;
    int left_;
    int done_{};
    std::mt19937_64 draw_;
    fs::path graves_;
    int buried_{};
    std::vector<change> names_{};
    std::map<fs::path, std::uintmax_t> unsynced_{};
};

struct mortal_disk {
    mortal_machine* machine;
    pulse::io::disk real{};

    bool make_folder(const fs::path& path) const {
        return machine->operate(path, [&](bool ending) {
            if (ending || !real.make_folder(path)) { return false; }
            machine->changed(path.parent_path(), [path] {
                std::error_code unused;
                fs::remove_all(path, unused);
            });
            return true;
        });
    }
    pulse::io::output_file create(const fs::path& path) const {
        return machine->operate(path, [&](bool ending) {
            if (ending) { return pulse::io::output_file{path, -1}; }
            machine->written(path);
            machine->changed(path.parent_path(), [path] {
                std::error_code unused;
                fs::remove(path, unused);
            });
            return real.create(path);
        });
    }
    void write(const pulse::io::output_file& file, std::span<const std::byte> bytes) const {
        machine->operate(file.path(), [&](bool ending) {
            real.write(file, ending ? bytes.first(machine->some(bytes.size())) : bytes);
        });
    }
    void write(const pulse::io::output_file& file, std::string_view text) const {
        write(file, std::as_bytes(std::span{text.data(), text.size()}));
    }
    void sync(const pulse::io::output_file& file) const {
        machine->operate(file.path(), [&](bool ending) {
            if (!ending) { machine->synced(file.path()); }
        });
    }
    void close(pulse::io::output_file& file) const {
        machine->operate(file.path(), [&](bool ending) {
            if (!ending) { real.close(file); }
        });
    }
    void rename(const fs::path& from, const fs::path& to) const {
        machine->operate(to, [&](bool ending) {
            if (ending) { return; }
            real.rename(from, to);
            machine->renamed(from, to);
            machine->changed(to.parent_path(), [from, to] {
                std::error_code unused;
                fs::rename(to, from, unused);
            });
        });
    }
    void sync_folder(const fs::path& path) const {
        machine->operate(path, [&](bool ending) {
            if (!ending) { machine->synced_folder(path); }
        });
    }
    void remove_file(const fs::path& path) const {
        machine->operate(path, [&](bool ending) {
            if (ending) { return; }
            const fs::path grave = machine->grave();
            std::error_code unused;
            fs::rename(path, grave, unused);
            machine->changed(path.parent_path(), [path, grave] {
                std::error_code gone;
                fs::rename(grave, path, gone);
            });
        });
    }
    void remove_folder(const fs::path& path) const {
        machine->operate(path, [&](bool ending) {
            if (ending) { return; }
            real.remove_folder(path);
            machine->changed(path.parent_path(), [path] {
                std::error_code unused;
                fs::create_directory(path, unused);
            });
        });
    }
};

const std::vector<pulse::parameter> model{
    {pulse::label{"a"}, {3, 4}, 2}, {pulse::label{"b"}, {5}, 1}, {pulse::label{"c"}, {2, 2}, 2}};

struct setting {
    world_shape shape;
    int keep;
};
const std::vector<setting> settings{{{}, 1}, {{.pipeline = 2, .data = 2, .sharded = true, .cuts = {1}}, 2}};

/// Saves versions 1 to 3 until the machine ends; returns the last version whose save returned on rank 0.
std::uint64_t run_until_end(mortal_machine& machine, const fs::path& root, const setting& with) {
    std::atomic<std::uint64_t> returned{};
    try {
        run_ranks(with.shape.ranks(), {}, [&](pulse::threads::transport& transport) {
            sharded_checkpoints<mortal_disk> writer{{.folder = root, .keep = with.keep, .piece_elements = 8},
                                                    {&machine}};
            for (std::uint64_t version = 1; version != 4; ++version) {
                pulse::test::save_version(writer, transport, model, with.shape, version);
                if (transport.rank() == 0) { returned = version; }
            }
        });
    } catch (const crash&) {}
    return returned;
}

/// Reading finds a whole version, none older than the last whose save returned; the next run continues from it.
void check_what_is_left(const fs::path& root, const setting& with, std::uint64_t returned) {
    std::uint64_t found = 0;
    std::error_code unused;
    if (returned != 0 || fs::exists(root, unused)) {
        try {
            const fs::path last = find_checkpoint(root);
            found = static_cast<std::uint64_t>(read_manifest(last).state.step);
            CHECK(pulse::test::differing_after_load(last, model, {}, found) == 0);
            // No part of an older version may look complete.
            for (const step_folder& folder : list_checkpoints(root)) {
                if (!folder.complete) { continue; }
                CHECK(pulse::test::differing_after_load(folder.path, model, {},
                                                        static_cast<std::uint64_t>(folder.step)) == 0);
            }
        } catch (const pulse::input_error& fault) {
            CHECK_MESSAGE(std::string{fault.what()}.find("holds no complete checkpoint") != std::string::npos,
                          fault.what());
        }
    }
    CHECK(found >= returned);
    CHECK(found <= returned + 1);

    run_ranks(with.shape.ranks(), {}, [&](pulse::threads::transport& transport) {
        sharded_checkpoints<pulse::test::unsynced_disk> writer{{.folder = root, .keep = with.keep}};
        pulse::test::save_version(writer, transport, model, with.shape, found + 1);
    });
    CHECK(pulse::test::differing_after_load(find_checkpoint(root), model, {}, found + 1) == 0);
    for (const step_folder& folder : list_checkpoints(root)) { CHECK(folder.complete); }
    CHECK(list_checkpoints(root).size() <= static_cast<std::size_t>(with.keep));
}

TEST_CASE("a crash or a loss of power at any operation leaves the last complete checkpoint") {
    for (std::size_t s = 0; s != settings.size(); ++s) {
        for (const bool power : {false, true}) {
            if (s != 0 && !power) { continue; } // the cases of a power loss include losing nothing
            bool ended = true;
            int operation = 0;
            for (; ended; ++operation) {
                CAPTURE(s);
                CAPTURE(power);
                CAPTURE(operation);
                const pulse::test::scratch folder;
                fs::create_directory(folder.path / "graves");
                mortal_machine machine{mortal_machine::end::dies, operation, static_cast<std::uint64_t>(operation),
                                       folder.path / "graves"};
                const fs::path root = folder.path / "run" / "checkpoints";
                const std::uint64_t returned = run_until_end(machine, root, settings[s]);
                ended = machine.ended();
                if (power) { machine.lose_power(); }
                check_what_is_left(root, settings[s], returned);
            }
            CHECK(operation > 40);
        }
    }
}

TEST_CASE("an operation that fails on one rank is the same error on all, and the next save works") {
    for (std::size_t s = 0; s != settings.size(); ++s) {
        const setting& with = settings[s];
        bool failed = true;
        for (int operation = 0; failed; ++operation) {
            CAPTURE(s);
            CAPTURE(operation);
            const pulse::test::scratch folder;
            fs::create_directory(folder.path / "graves");
            mortal_machine machine{mortal_machine::end::fails, operation, 1, folder.path / "graves"};
            const fs::path root = folder.path / "checkpoints";
            const auto ranks = static_cast<std::size_t>(with.shape.ranks());
            std::vector<std::vector<std::string>> said(ranks, std::vector<std::string>(4, ""));
            std::vector<std::uint64_t> found(4, 0);
            run_ranks(with.shape.ranks(), {}, [&](pulse::threads::transport& transport) {
                const auto rank = static_cast<std::size_t>(transport.rank());
                sharded_checkpoints<mortal_disk> writer{{.folder = root, .keep = with.keep, .piece_elements = 8},
                                                        {&machine}};
                for (std::uint64_t version = 1; version != 4; ++version) {
                    try {
                        const auto saved = pulse::test::save_version(writer, transport, model, with.shape, version);
                        said[rank][version] = saved.not_removed.empty() ? "" : "kept: " + saved.not_removed;
                    } catch (const pulse::input_error& fault) { said[rank][version] = fault.what(); }
                    transport.sum({});
                    if (rank == 0) {
                        try {
                            const fs::path last = find_checkpoint(root);
                            found[version] = static_cast<std::uint64_t>(read_manifest(last).state.step);
                            CHECK(pulse::test::differing_after_load(last, model, {}, found[version]) == 0);
                        } catch (const pulse::input_error&) {}
                    }
                    transport.sum({});
                }
            });
            failed = machine.ended();
            int errors = 0;
            for (std::uint64_t version = 1; version != 4; ++version) {
                const std::string& text = said[0][version];
                const bool saved = text.empty() || text.starts_with("kept: ");
                errors += text.empty() ? 0 : 1;
                CHECK(found[version] == (saved ? version : version - 1));
                for (const auto& of_rank : said) { CHECK(of_rank[version] == text); }
                if (!text.empty()) {
                    CHECK(text.find("cannot do operation " + std::to_string(operation)) != std::string::npos);
                }
            }
            CHECK(errors <= 1);
            // What could not be removed is gone after the next save.
            check_what_is_left(root, with, found[3]);
        }
    }
}

TEST_CASE("processes that are killed at any instant leave what they last saved") {
    const setting& with = settings[1];
    const pulse::test::scratch folder;
    const fs::path root = folder.path / "checkpoints";
    std::mt19937_64 draw{17};
    std::uint64_t next = 1;
    int saved = 0;
    for (int kill = 0; kill != 40; ++kill) {
        CAPTURE(kill);
        int said[2]{};
        REQUIRE(::pipe(said) == 0);
        const ::pid_t child = ::fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            run_ranks(with.shape.ranks(), {}, [&](pulse::threads::transport& transport) {
                sharded_checkpoints<pulse::test::unsynced_disk> writer{{.folder = root, .keep = with.keep}};
                for (std::uint64_t version = next;; ++version) {
                    pulse::test::save_version(writer, transport, model, with.shape, version);
                    if (transport.rank() == 0 && ::write(said[1], &version, sizeof version) != sizeof version) {
                        ::_exit(1);
                    }
                }
            });
            ::_exit(1);
        }
        ::close(said[1]);
        std::uint64_t returned = next - 1;
        std::uint64_t version = 0;
        // Half of them have saved once, however slow the machine is.
        if (kill % 2 == 0 && ::read(said[0], &version, sizeof version) == sizeof version) { returned = version; }
        const timespec wait{0, static_cast<long>(draw() % 12'000'000)};
        ::nanosleep(&wait, nullptr);
        REQUIRE(::kill(child, SIGKILL) == 0);
        int status = 0;
        REQUIRE(::waitpid(child, &status, 0) == child);
        REQUIRE(WIFSIGNALED(status));
        while (::read(said[0], &version, sizeof version) == sizeof version) { returned = version; }
        saved += static_cast<int>(returned - (next - 1));
        ::close(said[0]);
        if (returned == 0) { continue; }
        const fs::path last = find_checkpoint(root);
        const auto found = static_cast<std::uint64_t>(read_manifest(last).state.step);
        CHECK(found >= returned);
        CHECK(found <= returned + 1);
        CHECK(pulse::test::differing_after_load(last, model, {}, found) == 0);
        next = found + 1;
    }
    CHECK(saved >= 20);
}

} // namespace crash_test

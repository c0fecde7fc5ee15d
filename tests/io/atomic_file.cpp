#include <csignal>
#include <cstddef>
#include <filesystem>
#include <string>

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include <pulse/core/error.hpp>
#include <pulse/io/atomic_file.hpp>

#include <io/scratch.hpp>

using namespace pulse::io;
using pulse::test::bytes_of;
using pulse::test::scratch;
namespace fs = std::filesystem;

TEST_CASE("a file appears at commit, whole, and replaces the old one") {
    const scratch folder;
    const fs::path path = folder.path / "out.txt";
    write_file(path, "old");
    {
        atomic_file file{path};
        file.write("new ");
        file.write("content");
        CHECK(bytes_of(path) == "old");
        CHECK(folder.entries() == 2);
        file.commit();
        CHECK(bytes_of(path) == "new content");
    }
    CHECK(folder.entries() == 1);
    write_file(path, "");
    CHECK(fs::file_size(path) == 0);
    const std::string large(3'000'001, 'x');
    write_file(path, large);
    CHECK(bytes_of(path) == large);
}

TEST_CASE("without commit nothing changes and nothing is left") {
    const scratch folder;
    const fs::path path = folder.path / "out.txt";
    write_file(path, "old");
    { atomic_file{path}.write("half"); }
    CHECK(bytes_of(path) == "old");
    CHECK(folder.entries() == 1);
}

TEST_CASE("two writers of one name do not disturb each other") {
    const scratch folder;
    const fs::path path = folder.path / "out.txt";
    atomic_file a{path};
    atomic_file b{path};
    a.write("a");
    b.write("b");
    a.commit();
    CHECK(bytes_of(path) == "a");
    b.commit();
    CHECK(bytes_of(path) == "b");
    CHECK(folder.entries() == 1);
}

TEST_CASE("a commit that fails leaves the old file") {
    const scratch folder;
    const fs::path path = folder.path / "out.txt";
    write_file(path, "old");
    atomic_file file{path};
    file.write("new");
    for (const auto& entry : fs::directory_iterator{folder.path}) {
        if (entry.path() != path) { fs::remove(entry.path()); } // the temporary file: nothing is left to rename
    }
    CHECK_THROWS_WITH_AS(file.commit(), doctest::Contains("cannot replace"), pulse::input_error);
    CHECK(bytes_of(path) == "old");
}

TEST_CASE("a file has the permissions of any other new file") {
    const scratch folder;
    write_file(folder.path / "a", "x");
    pulse::test::put(folder.path / "b", "x");
    CHECK(fs::status(folder.path / "a").permissions() == fs::status(folder.path / "b").permissions());
}

TEST_CASE("a name may be as long as the file system allows") {
    const scratch folder;
    for (const std::size_t length : {200U, 201U, 254U, 255U}) {
        const fs::path path = folder.path / std::string(length, 'n');
        write_file(path, "content");
        CHECK(bytes_of(path) == "content");
    }
    CHECK(folder.entries() == 4);
    CHECK_THROWS_WITH_AS(atomic_file{folder.path / std::string(256, 'n')}, doctest::Contains("name too long"),
                         pulse::input_error);
    CHECK(folder.entries() == 4);
}

TEST_CASE("what cannot be written is named, with the reason") {
    const scratch folder;
    CHECK_THROWS_WITH_AS(write_file(folder.path / "no" / "out.txt", "x"),
                         doctest::Contains("no/out.txt': No such file"), pulse::input_error);
    pulse::test::put(folder.path / "file", "x");
    CHECK_THROWS_WITH_AS(write_file(folder.path / "file" / "out.txt", "x"), doctest::Contains("Not a directory"),
                         pulse::input_error);
    fs::create_directory(folder.path / "folder");
    CHECK_THROWS_WITH_AS(write_file(folder.path / "folder", "x"), doctest::Contains("/folder'"), pulse::input_error);
    CHECK_THROWS_AS(write_file(folder.path / "", "x"), pulse::input_error);
    CHECK_THROWS_AS(write_file("", "x"), pulse::input_error);
    CHECK(folder.entries() == 2);
}

TEST_CASE("what cannot be read is named, also if reading fails after opening") {
    const scratch folder;
    CHECK_THROWS_WITH_AS(static_cast<void>(read_file(folder.path / "no")), doctest::Contains("/no: cannot be read"),
                         pulse::input_error);
    CHECK_THROWS_WITH_AS(static_cast<void>(read_file(folder.path)), doctest::Contains("is a folder"),
                         pulse::input_error);
    // Nothing is mapped at address 0.
    CHECK_THROWS_WITH_AS(static_cast<void>(read_file("/proc/self/mem")), "/proc/self/mem: cannot be read",
                         pulse::input_error);
}

TEST_CASE("no file takes the place of a pipe or device") {
    const scratch folder;
    const fs::path pipe = folder.path / "pipe";
    REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
    fs::create_symlink(pipe, folder.path / "link");
    for (const char* const name : {"pipe", "link"}) {
        CHECK_THROWS_WITH_AS(write_file(folder.path / name, "x"),
                             doctest::Contains((std::string{name} + "': it is not a file").c_str()),
                             pulse::input_error);
    }
    CHECK(fs::is_fifo(pipe));
    CHECK(fs::is_symlink(folder.path / "link"));
    CHECK(folder.entries() == 2);
}

TEST_CASE("a disk that fills up leaves the old file and no trace") {
    const scratch folder;
    const fs::path path = folder.path / "out.txt";
    write_file(path, "old");
    // A file size limit makes a write fail half-way, as a full disk does.
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
    const auto handler = std::signal(SIGXFSZ, SIG_IGN);
    rlimit small = before;
    small.rlim_cur = 100'000;
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
    std::string said;
    try {
        write_file(path, std::string(1'000'000, 'x'));
    } catch (const pulse::input_error& fault) { said = fault.what(); }
    ::setrlimit(RLIMIT_FSIZE, &before);
    std::signal(SIGXFSZ, handler);
    CHECK(said.find("cannot write") == 0);
    CHECK(said.find("out.txt") != std::string::npos);
    CHECK(bytes_of(path) == "old");
    CHECK(folder.entries() == 1);
}

#include <emulated/rank_folder.hpp>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace emulated_nccl {

rank_folder::rank_folder(std::string path) : path_{std::move(path)} {}

std::string rank_folder::made_below(const std::string& parent) {
    std::string name = parent + "/nccl-XXXXXX";
    return ::mkdtemp(name.data()) == nullptr ? std::string{} : name;
}

bool rank_folder::put(const std::string& name, const void* bytes, std::size_t count) const {
    static std::atomic<unsigned> serial{0};
    const std::string draft = path_ + "/draft." + std::to_string(::getpid()) + "." + std::to_string(serial++);
    std::FILE* const file = std::fopen(draft.c_str(), "wbx");
    if (file == nullptr) { return false; }
    const bool written = std::fwrite(bytes, 1, count, file) == count;
    return std::fclose(file) == 0 && written && std::rename(draft.c_str(), (path_ + "/" + name).c_str()) == 0;
}

bool rank_folder::has(const std::string& name) const { return ::access((path_ + "/" + name).c_str(), F_OK) == 0; }

std::optional<std::string> rank_folder::get(const std::string& name) const {
    std::FILE* const file = std::fopen((path_ + "/" + name).c_str(), "rb");
    if (file == nullptr) { return std::nullopt; }
    std::string bytes;
    char room[65536];
    for (std::size_t n = 1; n != 0;) {
        n = std::fread(room, 1, sizeof room, file);
        bytes.append(room, n);
    }
    std::fclose(file);
    return bytes;
}

void rank_folder::remove(const std::string& name) const { ::unlink((path_ + "/" + name).c_str()); }

bool rank_folder::live(const std::string& name) const {
    // The lock ends with the process, however the process ends.
    const std::string draft = path_ + "/draft." + std::to_string(::getpid());
    const int file = ::open(draft.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    return file >= 0 && ::flock(file, LOCK_EX) == 0 && ::link(draft.c_str(), (path_ + "/" + name).c_str()) == 0 &&
           ::unlink(draft.c_str()) == 0;
}

bool rank_folder::died(const std::string& name) const {
    const int file = ::open((path_ + "/" + name).c_str(), O_RDWR | O_CLOEXEC);
    if (file < 0) { return false; }
    const bool free = ::flock(file, LOCK_SH | LOCK_NB) == 0;
    ::close(file);
    return free;
}

} // namespace emulated_nccl

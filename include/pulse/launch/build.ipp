#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include <link.h>

#include <pulse/core/error.hpp>
#include <pulse/core/fingerprint.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/launch/build.hpp>

namespace pulse::launch {

namespace detail {

/// The program or shared library that holds an address.
struct loaded_object {
    std::uintptr_t address{};
    bool found{};
    std::string file{};     ///< empty for the program itself
    std::string build_id{}; ///< hexadecimal; empty if the linker wrote none
};

/// The GNU build id in the notes of an ELF segment, in hexadecimal.
[[nodiscard]] inline std::string build_id_in(std::string_view notes, std::size_t alignment) {
    constexpr std::string_view owner{"GNU\0", 4};
    constexpr std::uint32_t type = 3; // NT_GNU_BUILD_ID
    const auto padded = [&](std::size_t n) { return (n + alignment - 1) / alignment * alignment; };
    ElfW(Nhdr) head{};
    while (notes.size() >= sizeof head) {
        std::memcpy(&head, notes.data(), sizeof head);
        const std::size_t content = padded(sizeof head + head.n_namesz);
        const std::size_t end = content + head.n_descsz;
        if (end > notes.size()) { break; }
        if (head.n_type == type && notes.substr(sizeof head, head.n_namesz) == owner) {
            std::string digits;
            for (const char c : notes.substr(content, head.n_descsz)) {
                for (const int shift : {4, 0}) {
                    digits.push_back("0123456789abcdef"[static_cast<unsigned char>(c) >> shift & 15]);
                }
            }
            return digits;
        }
        notes.remove_prefix(padded(end) < notes.size() ? padded(end) : notes.size());
    }
    return {};
}

/// Callback of dl_iterate_phdr: checks whether an object holds the address in `data`, a loaded_object, and fills it in.
inline int look_at_object(dl_phdr_info* object, std::size_t, void* data) {
    auto& wanted = *static_cast<loaded_object*>(data);
    for (int i = 0; i != object->dlpi_phnum; ++i) {
        const auto& part = object->dlpi_phdr[i];
        const std::uintptr_t begin = object->dlpi_addr + part.p_vaddr;
        wanted.found = wanted.found || (part.p_type == PT_LOAD && wanted.address - begin < part.p_memsz);
    }
    if (!wanted.found) { return 0; }
    wanted.file = object->dlpi_name;
    for (int i = 0; i != object->dlpi_phnum && wanted.build_id.empty(); ++i) {
        const auto& part = object->dlpi_phdr[i];
        if (part.p_type != PT_NOTE) { continue; }
        const auto* const notes = reinterpret_cast<const char*>(object->dlpi_addr + part.p_vaddr);
        wanted.build_id = build_id_in({notes, part.p_memsz}, part.p_align == 8 ? 8 : 4);
    }
    return 1;
}

/// The compiler that compiles this code.
[[nodiscard]] inline std::string compiler_text() {
#if defined(__CUDACC__) && defined(__CUDACC_VER_MAJOR__)
    return "nvcc " + std::to_string(__CUDACC_VER_MAJOR__) + "." + std::to_string(__CUDACC_VER_MINOR__) +
           " with " __VERSION__;
#elif defined(__clang__)
    return __VERSION__;
#else
    return "GCC " __VERSION__;
#endif
}

} // namespace detail

PULSE_INLINE std::string build_text() {
    static const char here{};
    detail::loaded_object own{.address = reinterpret_cast<std::uintptr_t>(&here)};
    dl_iterate_phdr(detail::look_at_object, &own);
    if (own.build_id.empty()) {
        const std::string path = own.file.empty() ? "/proc/self/exe" : own.file;
        std::ifstream file{path, std::ios::binary};
        const std::string content{std::istreambuf_iterator<char>{file}, std::istreambuf_iterator<char>{}};
        if (content.empty()) { throw error{"pulse: " + path + " cannot be read, so its build is unknown"}; }
        own.build_id = fingerprint{}.add(content).text();
    }
    return own.build_id.substr(0, 16) + " (" + detail::compiler_text() + ")";
}

} // namespace pulse::launch

#pragma once

#include <cstddef>
#include <istream>
#include <memory>
#include <ostream>

#include <cudnn.h>

#include <emulated/cudnn_descriptors.hpp>

/// Reads and writes descriptors as text, for the JSON of a plan.
namespace emulated_cuda::cudnn {

inline void write(std::ostream& out, const node& n) {
    std::size_t kept = 0;
    for (const auto& [name, v] : n.attributes) { kept += v.type == CUDNN_TYPE_HANDLE ? 0 : 1; }
    out << n.type << ' ' << kept << ' ';
    for (const auto& [name, v] : n.attributes) {
        if (v.type == CUDNN_TYPE_HANDLE) { continue; }
        out << name << ' ' << v.type << ' ' << v.count << ' ' << v.bytes.size() << ' ';
        for (const std::byte b : v.bytes) { out << std::to_integer<int>(b) << ' '; }
        for (const part& p : v.parts) { write(out, *p); }
    }
}
[[nodiscard]] inline part read(std::istream& in) {
    const part made = std::make_shared<node>();
    std::size_t attributes = 0;
    if (!(in >> made->type >> attributes) || attributes > 100) { bad("JSON of a plan"); }
    for (std::size_t i = 0; i != attributes; ++i) {
        int name = 0;
        value v;
        std::size_t bytes = 0;
        if (!(in >> name >> v.type >> v.count >> bytes) || bytes > 100000 || v.count < 0 || v.count > 100000) {
            bad("JSON of a plan");
        }
        for (std::size_t b = 0; b != bytes; ++b) {
            int one = 0;
            if (!(in >> one)) { bad("JSON of a plan"); }
            v.bytes.push_back(static_cast<std::byte>(one));
        }
        for (std::int64_t p = 0; v.type == CUDNN_TYPE_BACKEND_DESCRIPTOR && p != v.count; ++p) {
            v.parts.push_back(read(in));
        }
        made->attributes[name] = v;
    }
    made->final = true;
    return made;
}
inline constexpr const char* json_head = "{\"emulated plan\": \"";

} // namespace emulated_cuda::cudnn

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/io/mapped_file.hpp>
#include <pulse/io/safetensors_header.hpp>

namespace pulse::io {

/// A safetensors file that has been checked against the format's rules and can be read tensor by tensor.
///
/// Rules checked on opening: header length, JSON, known types, sizes, no name twice, no holes, no overlap, no bytes
/// left over. Source: the format section of huggingface/safetensors. Throws input_error naming the file and the tensor.
class safetensors_file {
public:
    explicit safetensors_file(const std::filesystem::path& path);

    /// Tensors in the order of their bytes.
    [[nodiscard]] std::span<const tensor_entry> tensors() const noexcept { return tensors_; }
    [[nodiscard]] const tensor_metadata& metadata() const noexcept { return metadata_; }
    /// Where the bytes of the tensors begin in the file.
    [[nodiscard]] std::uint64_t data_begin() const noexcept { return data_begin_; }

    /// The tensor of that name, or nullptr.
    [[nodiscard]] const tensor_entry* find(std::string_view name) const noexcept {
        const auto found =
            std::find_if(tensors_.begin(), tensors_.end(), [&](const auto& t) { return t.name == name; });
        return found == tensors_.end() ? nullptr : &*found;
    }

    /// The mapped bytes of one of tensors(); they may lie at any address.
    [[nodiscard]] std::span<const std::byte> bytes(const tensor_entry& tensor) const noexcept {
        return file_.bytes().subspan(data_begin_ + tensor.begin, tensor.end - tensor.begin);
    }
    /// Copies the tensor's bytes to `out`. Throws input_error when `out` has another size.
    void read(const tensor_entry& tensor, std::span<std::byte> out) const;

private:
    void parse(std::string_view header, std::uint64_t data_size);

    std::string name_;
    mapped_file file_;
    std::uint64_t data_begin_{};
    std::vector<tensor_entry> tensors_{};
    tensor_metadata metadata_{};
};

/// Writes tensors and metadata, atomically; equal input gives equal bytes, whatever the order of `tensors`.
///
/// Throws input_error on a name given twice, a size that does not fit, or a file that cannot be written.
PULSE_INLINE void write_safetensors(const std::filesystem::path& path, std::span<const tensor_source> tensors,
                                    const tensor_metadata& metadata = {});

} // namespace pulse::io

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/io/safetensors.ipp> // IWYU pragma: keep
#endif

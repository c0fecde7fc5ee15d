#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/diffusers/model_files.hpp>
#include <pulse/diffusers/single_file.hpp>
#include <pulse/io/safetensors.hpp>
#include <pulse/model/parameter.hpp>

namespace pulse::diffusers {

/// What weights must have.
struct weights_request {
    std::vector<parameter> parameters{}; ///< of the whole model, in any order
    /// Tensors that may be absent: older versions kept them beside the weights.
    std::vector<std::string_view> ignored{};
};

/// The weights of one component of a pipeline: in a diffusers folder, safetensors in one file or in shards with an
/// index, as diffusers (diffusion_pytorch_model) and transformers (model) name them, or part of a checkpoint of one
/// file for all components. Files are mapped, and tensors are read on demand.
///
/// Opening checks every header in full and the index against the shards. Throws input_error, one line that names the
/// file and the tensor.
class weights {
public:
    /// `folder` is the component's, such as DIR/unet. One file is preferred to shards; the variant fp16 is read if
    /// there is nothing else. A pointer of Git LFS is refused as such.
    explicit weights(const std::filesystem::path& folder);

    /// Opens the weights of a component in `from`.folder/component or in the checkpoint of one file, whose tensors get
    /// the names and shapes of the component's.
    weights(const model_files& from, std::string_view component);

    /// One tensor of the component and the file that holds it.
    struct tensor {
        const io::tensor_entry* entry{};
        const io::safetensors_file* file{};
        const std::vector<std::byte>* turned{}; ///< bytes of a matrix that the file has transposed; null: the file's

        [[nodiscard]] std::span<const std::byte> bytes() const noexcept {
            return turned != nullptr ? std::span{*turned} : file->bytes(*entry);
        }
    };

    /// All tensors by name.
    [[nodiscard]] const std::map<std::string, tensor, std::less<>>& tensors() const noexcept { return tensors_; }

    /// Renames the tensor `from` to `to`, if there is a `from` and no `to`.
    void rename(std::string_view from, const std::string& to);

    /// Throws input_error unless the component has the requested tensors, in their shapes, as F32, F16 or BF16: one
    /// line names up to five each of those that are missing, of another shape or of another type.
    ///
    /// Other tensors are not read, as in diffusers and transformers; unread() names them.
    void require(const weights_request& request);

    /// One line that counts and names the tensors that were not requested; empty if there are none.
    [[nodiscard]] const std::string& unread() const noexcept { return unread_; }

    /// Converts the elements from `first` on into `out`. Only for tensors that require() has checked.
    void read(const parameter& what, std::int64_t first, std::span<float> out) const;

private:
    void add(const std::filesystem::path& file);
    void read_index(const std::filesystem::path& index);
    void add_stored(const io::safetensors_file& file, const io::tensor_entry& entry, const stored_tensor& is);

    std::string name_;
    std::string unread_{};
    std::vector<std::unique_ptr<io::safetensors_file>> files_{};
    std::deque<io::tensor_entry> renamed_{}; ///< entries of a checkpoint of one file
    std::deque<std::vector<std::byte>> turned_{};
    std::map<std::string, tensor, std::less<>> tensors_{};
};

/// The bytes of the transpose of a matrix of `rows` and `columns`, neither of which is 0.
[[nodiscard]] PULSE_INLINE std::vector<std::byte> transposed(std::span<const std::byte> bytes, std::int64_t rows,
                                                             std::int64_t columns);

/// Converts the elements of a tensor from `first` on to floats. Its type is F32, F16 or BF16.
PULSE_INLINE void convert_elements(std::span<const std::byte> bytes, io::element_type type, std::int64_t first,
                                   std::span<float> out);

} // namespace pulse::diffusers

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/diffusers/weights.ipp> // IWYU pragma: keep
#endif

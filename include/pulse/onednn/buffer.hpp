#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

namespace pulse::onednn {

/// An array of numbers that starts on a cache line; its elements are not initialised.
template <class T>
class basic_buffer {
public:
    static constexpr std::size_t alignment = 64;

    basic_buffer() = default;
    explicit basic_buffer(std::int64_t elements) :
        data_{static_cast<T*>(
            ::operator new (static_cast<std::size_t>(elements) * sizeof(T), std::align_val_t{alignment}))},
        elements_{elements} {}
    basic_buffer(basic_buffer&& other) noexcept :
        data_{std::exchange(other.data_, nullptr)}, elements_{std::exchange(other.elements_, 0)} {}
    basic_buffer& operator=(basic_buffer&& other) noexcept {
        basic_buffer taken{std::move(other)};
        std::swap(data_, taken.data_);
        std::swap(elements_, taken.elements_);
        return *this;
    }
    basic_buffer(const basic_buffer&) = delete;
    basic_buffer& operator=(const basic_buffer&) = delete;
    ~basic_buffer() { ::operator delete (data_, std::align_val_t{alignment}); }

    [[nodiscard]] T* data() const noexcept { return data_; }
    [[nodiscard]] std::int64_t bytes() const noexcept { return elements_ * static_cast<std::int64_t>(sizeof(T)); }

    /// Makes room for at least this many elements; growing discards the content.
    T* reserve(std::int64_t elements) {
        if (elements > elements_) {
            *this = basic_buffer{};
            *this = basic_buffer{elements};
        }
        return data_;
    }

private:
    T* data_{};
    std::int64_t elements_{};
};

using buffer = basic_buffer<float>;

} // namespace pulse::onednn

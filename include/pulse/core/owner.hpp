#pragma once

#include <utility>

namespace pulse {

/// Owns an object of a C library and releases it with Destroy, also one that a failed call has written.
template <class Handle, auto Destroy>
class owner {
public:
    owner() = default;
    owner(owner&& other) noexcept : handle_{std::exchange(other.handle_, nullptr)} {}
    owner& operator=(owner&& other) noexcept {
        owner taken{std::move(other)};
        std::swap(handle_, taken.handle_);
        return *this;
    }
    ~owner() {
        if (handle_ != nullptr) { static_cast<void>(Destroy(handle_)); }
    }

    [[nodiscard]] Handle get() const noexcept { return handle_; }
    /// Where the creating call writes the handle; only for an empty owner.
    [[nodiscard]] Handle* place() noexcept { return &handle_; }

private:
    Handle handle_{};
};

} // namespace pulse

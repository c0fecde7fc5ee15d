#pragma once

#include <utility>

namespace pulse {

/// Owner of one object of a C library, which Destroy gives back: also what a call that failed has written.
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
    /// Where the call that makes an object writes it, while there is none.
    [[nodiscard]] Handle* place() noexcept { return &handle_; }

private:
    Handle handle_{};
};

} // namespace pulse

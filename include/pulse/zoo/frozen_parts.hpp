#pragma once

#include <string_view>
#include <vector>

#include <pulse/hardware/device.hpp>
#include <pulse/model/extent.hpp>
#include <pulse/model/graph_of.hpp>
#include <pulse/model/resize.hpp>
#include <pulse/profile/analytic_frozen.hpp>
#include <pulse/profile/frozen_component.hpp>
#include <pulse/zoo/frozen_graphs.hpp>
#include <pulse/zoo/frozen_networks.hpp>

namespace pulse {

namespace detail {

/// Calls use(static_cast<const Networks*>(nullptr)) with the published frozen networks of the backbone called `model`;
/// does nothing for backbones that read pictures.
template <class Use>
constexpr void with_networks(std::string_view model, const Use& use) {
    using frozen::networks_of;
    if (model == "sd15" || model == "controlnet_sd15") { return use(static_cast<const networks_of<sd15>*>(nullptr)); }
    if (model == "sd21") { return use(static_cast<const networks_of<sd21>*>(nullptr)); }
    if (model == "sdxl") { return use(static_cast<const networks_of<sdxl>*>(nullptr)); }
    if (model == "hunyuan_dit_v11" || model == "hunyuan_dit_v12") {
        return use(static_cast<const networks_of<hunyuan_dit_v12>*>(nullptr));
    }
    if (model == "uvit_l2" || model == "uvit_h2") { return use(static_cast<const networks_of<uvit_h2>*>(nullptr)); }
}

} // namespace detail

/// The published frozen networks of the backbone called `model`; none for backbones that read pictures.
[[nodiscard]] constexpr std::vector<frozen_graph> frozen_parts(std::string_view model) {
    std::vector<frozen_graph> all{};
    detail::with_networks(model, [&]<class Networks>(const Networks*) { all = frozen_graphs<Networks>(); });
    return all;
}

/// The same with analytic costs (analytic_frozen) for latents of this extent; {}: the extent of the model's type.
[[nodiscard]] constexpr std::vector<frozen_component> frozen_costs(std::string_view model, const device& on,
                                                                   int scalar_bytes, const extent& latents = {}) {
    std::vector<frozen_component> all{};
    detail::with_networks(model, [&]<class Networks>(const Networks*) {
        using encoder = typename Networks::encoder;
        constexpr int each = Networks::picture_config.sample_size / Networks::picture_config.latent_size();
        const auto pictures = graph_of<encoder>(resize<encoder>({each * latents.height, each * latents.width}));
        for (const frozen_graph& part : frozen_graphs<Networks>(pictures.view())) {
            all.push_back(analytic_frozen(part, on, scalar_bytes));
        }
    });
    return all;
}

} // namespace pulse

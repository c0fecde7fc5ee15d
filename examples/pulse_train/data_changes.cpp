#include "data_changes.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/frozen/picture_source.hpp>
#include <pulse/io/atomic_file.hpp>

#include "artifacts.hpp"
#include "rank_collectives.hpp"

namespace pulse_train {

namespace {

/// How the pictures changed between two listings (pulse::frozen::picture_source::listing): how many were added, were
/// removed or have another caption or, with `hints`, another hint, with the first name of each.
[[nodiscard]] std::string changes_between(std::string_view before, std::string_view now, bool hints) {
    using entries = std::vector<std::pair<std::string_view, std::string_view>>; // name and caption
    const auto sorted = [](std::string_view listing) {
        entries all;
        while (!listing.empty()) {
            const std::size_t end = std::min(listing.find('\n'), listing.size());
            const std::string_view line = listing.substr(0, end);
            const std::size_t space = std::min(line.find(' '), line.size());
            all.emplace_back(line.substr(std::min(space + 1, line.size())), line.substr(0, space));
            listing.remove_prefix(std::min(end + 1, listing.size()));
        }
        std::sort(all.begin(), all.end());
        return all;
    };
    const entries had = sorted(before);
    const entries has = sorted(now);
    entries gone;
    entries come;
    std::set_difference(had.begin(), had.end(), has.begin(), has.end(), std::back_inserter(gone));
    std::set_difference(has.begin(), has.end(), had.begin(), had.end(), std::back_inserter(come));
    const auto by_name = [](const auto& a, const auto& b) { return a.first < b.first; };
    entries added;
    entries removed;
    entries changed;
    std::set_difference(come.begin(), come.end(), gone.begin(), gone.end(), std::back_inserter(added), by_name);
    std::set_difference(gone.begin(), gone.end(), come.begin(), come.end(), std::back_inserter(removed), by_name);
    std::set_intersection(come.begin(), come.end(), gone.begin(), gone.end(), std::back_inserter(changed), by_name);
    std::string text;
    const auto say = [&](const entries& these, const std::string& one, const std::string& many) {
        if (these.empty()) { return; }
        text += (text.empty() ? "" : ", ") + std::to_string(these.size()) + (these.size() == 1 ? one : many) + " ('" +
                std::string{these.front().first} + "')";
    };
    say(added, " picture was added", " pictures were added");
    say(removed, " was removed", " were removed");
    const std::string more = hints ? " or conditioning image" : "";
    say(changed, " has another caption" + more, " have other captions" + more + (hints ? "s" : ""));
    return text.empty() ? "their order differs" : text;
}

/// Splits a config's text about images: how many and which, and how they are used. What an older one says about bad
/// pictures is left out: if all can be read, no sample depends on it.
[[nodiscard]] std::pair<std::string, std::string> which_and_how(const std::string& images) {
    const std::size_t end = std::min(images.find("), "), images.size() - 1) + 1;
    return {images.substr(0, end), images.substr(end, images.find(", bad ones ") - end)};
}

/// The file name of the listing of the pictures that a config identifies by checksum.
[[nodiscard]] std::string listing_name(const std::string& images) {
    return "data-" + images.substr(images.find('(') + 1, images.find(')') - images.find('(') - 1) + ".txt";
}

/// What changed in --data since a checkpoint whose config describes it as `before`.
[[nodiscard]] std::string changes_of_data(const run_inputs& in, const std::string& before) {
    for (const std::filesystem::path& folder : folders_of_resumed(in)) {
        if (in.pictures == nullptr) { break; }
        try {
            const std::string listing = pulse::io::read_file(folder / listing_name(before));
            return changes_between(listing, in.pictures->listing(), in.pictures->has_hints());
        } catch (const pulse::input_error&) {} // missing: an older version or another folder
    }
    return "it was " + which_and_how(before).first + ", now it is " + which_and_how(in.config.at("images")).first;
}

} // namespace

bool same_images(const run_inputs& in, const std::string& before) {
    const auto [which, how] = which_and_how(before);
    const auto [which_now, how_now] = which_and_how(in.config.at("images"));
    if (how != how_now) { return false; }
    if (which == which_now) { return true; }
    const std::string changed = "--data has changed since '" + in.args.resume + "': " + changes_of_data(in, before);
    if (!in.args.data_changed) {
        throw pulse::input_error{changed + "; to go on with the data as they are now, give --data-changed yes"};
    }
    if (in.args.processes == nullptr || in.args.processes->rank() == 0) { std::puts(changed.c_str()); }
    return true;
}

void keep_listing(const run_inputs& in) {
    if (in.pictures == nullptr) { return; }
    pulse::io::write_file(in.file(listing_name(in.pictures->text()).c_str()), in.pictures->listing());
}

} // namespace pulse_train

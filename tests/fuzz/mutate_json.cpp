// Half of the mutations change the JSON values instead of the characters, so that most inputs pass the parser.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t room);

namespace {

using nlohmann::json;

void collect(json& value, std::vector<json*>& all) {
    all.push_back(&value);
    if (value.is_structured()) {
        for (json& part : value) { collect(part, all); }
    }
}

json edge_value(std::minstd_rand& draw) {
    switch (draw() % 12) {
    case 0: return nullptr;
    case 1: return -1;
    case 2: return 0;
    case 3: return 1;
    case 4: return 2147483647;
    case 5: return 2147483648;
    case 6: return INT64_MAX;
    case 7: return UINT64_MAX;
    case 8: return 1e308;
    case 9: return "";
    case 10: return json::array();
    default: return json::object();
    }
}

/// Changes one place: sets another value, changes a number slightly, or duplicates, removes or moves an entry.
void change(json& root, std::minstd_rand& draw) {
    std::vector<json*> all;
    collect(root, all);
    json& at = *all[draw() % all.size()];
    const json& other = *all[draw() % all.size()];
    switch (draw() % 4) {
    case 0: at = edge_value(draw); break;
    case 1: {
        const json copy = other;
        at = copy;
        break;
    }
    case 2:
        if (at.is_number_integer()) {
            at = static_cast<std::int64_t>(static_cast<std::uint64_t>(at.get<std::int64_t>()) + draw() % 5 - 2);
        } else if (at.is_number()) {
            at = at.get<double>() * static_cast<double>(draw() % 5) * 0.5;
        } else if (at.is_boolean()) {
            at = !at.get<bool>();
        }
        break;
    default:
        if (at.is_array() && !at.empty()) {
            const std::size_t i = draw() % at.size();
            if (draw() % 2 == 0) {
                at.push_back(json(at[i]));
            } else {
                at.erase(i);
            }
        } else if (at.is_object() && !at.empty()) {
            at.erase(std::next(at.begin(), static_cast<std::ptrdiff_t>(draw() % at.size())));
        }
    }
}

} // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t room, unsigned seed) {
    std::minstd_rand draw{seed};
    json root = json::parse(data, data + size, nullptr, false);
    if (root.is_discarded() || draw() % 2 == 0) { return LLVMFuzzerMutate(data, size, room); }
    const auto changes = 1 + draw() % 3;
    for (unsigned i = 0; i != changes; ++i) { change(root, draw); }
    const std::string text = root.dump(-1, ' ', false, json::error_handler_t::replace);
    if (text.size() > room) { return LLVMFuzzerMutate(data, size, room); }
    std::copy(text.begin(), text.end(), data);
    return text.size();
}

#pragma once

#include <string>

namespace pulse::test {

inline bool mentions(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

} // namespace pulse::test

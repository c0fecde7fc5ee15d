#include "best_checkpoint.hpp"

#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include <pulse/core/error.hpp>
#include <pulse/io/atomic_file.hpp>

#include "artifacts.hpp"

namespace pulse_train {

best_checkpoint::best_checkpoint(const std::filesystem::path& folder, std::string measure, bool goes_on,
                                 std::int64_t first) :
    path_{folder / best_note_name},
    measure_{std::move(measure)} {
    std::error_code unused;
    if (!goes_on) { std::filesystem::remove(path_, unused); } // from another run
    if (!std::filesystem::exists(path_, unused)) { return; }
    const auto read = nlohmann::json::parse(pulse::io::read_file(path_), nullptr, false);
    const bool is_note = read.is_object() && read.contains("step") && read["step"].is_number_integer() &&
                         read.contains("validation_loss") && read["validation_loss"].is_number();
    if (!is_note) { throw pulse::input_error{path_.string() + ": must contain step and validation_loss"}; }
    if (read["step"].get<std::int64_t>() > first || read.value("of", "") != measure_) { return; }
    loss_ = read["validation_loss"].get<double>();
}

void best_checkpoint::note(std::int64_t step, double loss) {
    loss_ = loss;
    const nlohmann::ordered_json said{{"step", step}, {"validation_loss", loss}, {"of", measure_}};
    pulse::io::write_file(path_, said.dump() + "\n");
}

} // namespace pulse_train

// What a model's extent has to be, where the compiler knows it.
//
// error-1: pulse: height and width of a model's input are multiples of what its halvings divide (steps_of)

#include <pulse/model/resize.hpp>
#include <pulse/zoo/ddpm.hpp>

struct halving : pulse::ddpm_tiny {};
constexpr pulse::extent wanted{12, CASE == 1 ? 11 : 16};
static_assert(pulse::resize_to<halving, wanted>().to == wanted);

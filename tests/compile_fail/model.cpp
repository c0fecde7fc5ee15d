// How the parts of a model must fit together.
//
// error-1: pulse: a skip edge begins at an unknown layer
// error-2: pulse: a skip edge ends at an unknown layer
// error-3: pulse: a skip edge goes backwards
// error-4: pulse: a skip edge goes backwards
// error-5: pulse: the shape on a skip edge (output of Subject) is not what its target (Object) concatenates
// error-6: pulse: two layers of a model have the same name
// error-7: pulse: the output shape of a layer (Subject) is not the input shape of the next one (Object)
// error-8: pulse: a layer concatenates a skip (Subject has a skip_input) but no skip edge ends at it
// error-9: pulse: two skip edges end at the same layer
// error-10: pulse: a skip edge ends at a layer that concatenates nothing
// error-11: pulse: a layer reads conditioning (Subject) but the model has no conditioning module
// error-12: pulse: a layer reads conditioning of another shape (Subject) than the model gives
// error-13: pulse: a model must have at least one layer
// error-14: pulse: the second argument of a model must be layers<...>
// error-15: pulse: the third argument of a model must be skips<skip<...>, ...>
// error-16: pulse: a shape must have at most 8 dimensions
// error-17: pulse: a layer reads context (Subject) but the model's conditioning module gives none
// error-18: pulse: a layer reads context of another shape (Subject) than the model gives
// error-19: pulse: this model is only declared here: include the header that defines it

#include <pulse/model/model.hpp>

#include "../support/archetype.hpp"

using pulse::layers;
using pulse::model;
using pulse::shape;
using pulse::skip;
using pulse::skips;

using in = archetype::layer<"in", shape<1>, shape<4>>;
using body = archetype::layer<"body", shape<4>>;
using join = archetype::joining_layer<"join", shape<4>, shape<4>>;
using wide_join = archetype::joining_layer<"join", shape<4>, shape<8>>;
using timed = archetype::conditioned_layer<"timed", shape<4>, shape<16>>;
using reader = archetype::attending_layer<"reader", shape<4>, shape<3, 5>>;
using text_7 = archetype::module_with_text<"clock", shape<16>, shape<3, 7>>;
using clock_16 = archetype::module<"clock", shape<16>>;
using clock_32 = archetype::module<"clock", shape<32>>;

#if CASE == 0
struct plain : model<"plain", layers<in, body>> {};
struct skipping : model<"skipping", layers<in, body, join>, skips<skip<"in", "join">>> {};
struct timely : model<"timely", layers<in, body, timed>, skips<>, clock_16> {};
static_assert(plain::layer_count == 2 && skipping::skip_count == 1 && timely::is_conditioned);
#elif CASE == 1
struct wrong : model<"wrong", layers<in, body, join>, skips<skip<"inn", "join">>> {};
#elif CASE == 2
struct wrong : model<"wrong", layers<in, body, join>, skips<skip<"in", "joint">>> {};
#elif CASE == 3
struct wrong : model<"wrong", layers<in, join, body>, skips<skip<"body", "join">>> {};
#elif CASE == 4
struct wrong : model<"wrong", layers<in, body, join>, skips<skip<"join", "join">>> {};
#elif CASE == 5
struct wrong : model<"wrong", layers<in, body, wide_join>, skips<skip<"in", "join">>> {};
#elif CASE == 6
struct wrong : model<"wrong", layers<in, body, body>> {};
#elif CASE == 7
struct wrong : model<"wrong", layers<body, in>> {};
#elif CASE == 8
struct wrong : model<"wrong", layers<in, body, join>> {};
#elif CASE == 9
struct wrong : model<"wrong", layers<in, body, join>, skips<skip<"in", "join">, skip<"body", "join">>> {};
#elif CASE == 10
struct wrong : model<"wrong", layers<in, body>, skips<skip<"in", "body">>> {};
#elif CASE == 11
struct wrong : model<"wrong", layers<in, timed>> {};
#elif CASE == 12
struct wrong : model<"wrong", layers<in, timed>, skips<>, clock_32> {};
#elif CASE == 13
struct wrong : model<"wrong", layers<>> {};
#elif CASE == 14
struct wrong : model<"wrong", in> {};
#elif CASE == 15
struct wrong : model<"wrong", layers<in, body, join>, skip<"in", "join">> {};
#elif CASE == 16
struct wrong : model<"wrong", layers<archetype::layer<"deep", shape<1, 1, 1, 1, 1, 1, 1, 1, 1>>>> {};
#elif CASE == 17
struct wrong : model<"wrong", layers<in, reader>, skips<>, clock_16> {};
#elif CASE == 18
struct wrong : model<"wrong", layers<in, reader>, skips<>, text_7> {};
#elif CASE == 19
struct only_declared;
static_assert(pulse::any_model<only_declared>);
#endif

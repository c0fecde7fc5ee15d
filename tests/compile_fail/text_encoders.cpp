// What configs need to describe a text encoder, and what it needs of a backend.
//
// error-1: pulse: a clip_text_config needs a name
// error-2: pulse: a clip_text_config needs layers and heads
// error-3: pulse: states_before of a clip_text_config must be less than num_hidden_layers
// error-4: pulse: the heads of an attention must divide its channels
// error-5: pulse: a bert_text_config needs a name
// error-6: pulse: every size of a layer must be positive
// error-7: pulse: a t5_text_config needs layers
// error-8: pulse: the buckets of a t5_text_config must be a multiple of 4
// error-9: pulse: a text encoder needs a text_backend

#include <pulse/encode/known_text_encoders.hpp>
#include <pulse/encode/text_encoder.hpp>
#include <pulse/reference/backend.hpp>

namespace encode = pulse::encode;

constexpr encode::clip_text_config clip_config() {
    encode::clip_text_config c = encode::clip_vit_l;
    c.num_hidden_layers = 2;
#if CASE == 1
    c.name = {};
#elif CASE == 2
    c.num_attention_heads = 0;
#elif CASE == 3
    c.states_before = 2;
#elif CASE == 4
    c.num_attention_heads = 7;
#endif
    return c;
}

constexpr encode::bert_text_config bert_config() {
    encode::bert_text_config c = encode::hunyuan_clip;
    c.num_hidden_layers = 1;
#if CASE == 5
    c.name = {};
#elif CASE == 6
    c.vocab_size = 0;
#endif
    return c;
}

constexpr encode::t5_text_config t5_config() {
    encode::t5_text_config c = encode::mt5_xl;
    c.num_layers = 1;
#if CASE == 7
    c.num_layers = 0;
#elif CASE == 8
    c.relative_attention_num_buckets = 30;
#endif
    return c;
}

struct trains_only : pulse::reference::backend<float> {
#if CASE == 9
    void rms_norm() = delete;
#endif
};

void encode_on(trains_only& on, const float* facts, float* states) {
    encode::text_encoder<encode::bert_text<bert_config()>, trains_only>{on, 1}.run(1, facts, states);
}

#if CASE <= 4
constexpr double flops = encode::clip_text<clip_config()>::forward_flops();
#elif CASE <= 6
constexpr double flops = encode::bert_text<bert_config()>::forward_flops();
#else
constexpr double flops = encode::t5_text<t5_config()>::forward_flops();
#endif
#if CASE == 0
static_assert(flops > 0.0 && encode::bert_text<bert_config()>::forward_flops() > 0.0 &&
              encode::t5_text<t5_config()>::forward_flops() > 0.0);
#endif

int main() { return flops > 0.0 ? 0 : 1; }

// What crosses the border to Python (library.py mirrors it field by field). Pointers stay the
// caller's; integers are 64 bits wide.
#pragma once

#include <cstdint>

extern "C" {

struct PilotfishModel {
  int64_t rounds;  // 1: weights, cache and rounding in bfloat16; 0: float32 throughout
  int64_t hidden;
  int64_t inter;
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  int64_t vocab;   // rows of the head
  int64_t tokens;  // rows of the embedding
  int64_t layers;
  int64_t max_positions;
  float epsilon;
  float scale;            // of attention scores
  const float* cosines;   // [max_positions][head_dim]
  const float* sines;     // [max_positions][head_dim]
  const void* embedding;  // [tokens][hidden], not packed
  const float* norm;      // [hidden]
  const void* head;       // packed [hidden → vocab]
};

struct PilotfishLayer {
  const void* qkv;        // packed [hidden → (heads + 2 kv_heads) head_dim]
  const float* qkv_bias;  // padded to panels, or null
  const void* out;        // packed [heads head_dim → hidden]
  const float* out_bias;
  const void* gate_up;    // packed [hidden → 2 inter], panels of gate and up by turns
  const void* down;       // packed [inter → hidden]
  const float* attention_norm;  // [hidden]
  const float* mlp_norm;        // [hidden]
  const float* query_norm;      // [head_dim] or null
  const float* key_norm;        // [head_dim] or null
  int64_t window;               // keys a row sees, 0: all
};

// One forward. The rows of a span are the newest of its sequence, in order.
struct PilotfishStep {
  int64_t rows;
  const int64_t* ids;        // [rows]
  const int64_t* positions;  // [rows]
  const int64_t* slots;      // [rows] where each row's keys and values go
  int64_t spans;
  const int64_t* starts;         // [spans] first row
  const int64_t* stops;          // [spans] after the last row
  const int64_t* const* tables;  // [spans] the slot of each token of the sequence
  void* const* keys;    // [layers] pools [slots][kv_heads][head_dim]
  void* const* values;  // [layers]
  int64_t kept;
  const int64_t* keep;  // [kept] rows whose logits are wanted
  float* logits;        // [kept][vocab padded to 16]
  int64_t taps;
  const int64_t* tap;  // [taps] 0: the embedding, i: the output of layer i-1
  void* features;      // bfloat16 [slots][taps * hidden], or null
};

// One linear map, out = x W + bias.
struct PilotfishLinear {
  int64_t rounds;  // weights in 1: bfloat16, 0: float32; everything else is float32
  int64_t in;
  int64_t out;
  const void* packed;  // [in → out]
  const float* bias;   // padded to panels, or null
};

// One decoder layer of a small model; with a second input, `beside`, whose norm comes first.
struct PilotfishDraftLayer {
  int64_t rounds;  // weights in 1: bfloat16, 0: float32; everything else is float32
  int64_t hidden;
  int64_t inter;
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  int64_t turned;           // dims of a head that a position turns
  int64_t interleaved;      // 1: neighbours turn together, 0: halves
  int64_t normed_residual;  // 1: the residual stream is the normed input
  float epsilon;
  float scale;            // of attention scores
  const void* qkv;        // packed [hidden, or 2 hidden → (heads + 2 kv_heads) head_dim]
  const float* qkv_bias;  // padded to panels, or null
  const void* out;        // packed [heads head_dim → hidden]
  const void* gate_up;    // packed [hidden → 2 inter], panels of gate and up by turns
  const void* down;       // packed [inter → hidden]
  const float* beside_norm;  // [hidden] or null
  const float* input_norm;   // [hidden]
  const float* mlp_norm;     // [hidden]
  const float* query_norm;   // [head_dim] or null
  const float* key_norm;     // [head_dim] or null
};

// A span's rows are consecutive rows of one session, written at its offset. capacities are multiples
// of eight: keys are read to the next one.
struct PilotfishDraftStep {
  int64_t rows;
  const float* x;        // [rows][hidden]
  const float* beside;   // [rows][hidden] or null
  const float* cosines;  // [rows][turned / 2]
  const float* sines;    // [rows][turned / 2]
  int64_t causal;        // 0: a row also sees the rows of its span after it
  int64_t window;        // keys at less than this distance, 0: all
  int64_t spans;
  const int64_t* starts;      // [spans] first row
  const int64_t* stops;       // [spans] after the last row
  const int64_t* offsets;     // [spans] where in the session its rows go
  const int64_t* capacities;  // [spans] rows of the session's memory
  float* const* keys;         // [spans] [kv_heads][capacity][head_dim]
  float* const* values;       // [spans]
  float* out;                 // [rows][hidden]
};

// A model whose first layer joins a token's embedding (`beside`) with the state before it.
struct PilotfishChain {
  int64_t count;                      // layers
  const PilotfishDraftLayer* layers;  // [count]
  int64_t recycles_normed;            // 1: the first layer reads the normed state
  const float* norm;                  // [hidden], before the head
  float epsilon;
  const PilotfishLinear* head;
  int64_t choices;       // columns of the head that may be drafted
  const int64_t* ids;    // [choices] what they are called, or null: column i is token i
  int64_t rounded;       // embeddings in 1: bfloat16, 0: float32
  int64_t tokens;        // rows of the table
  const void* embedding;  // [tokens][hidden]
};

// Chains of different lengths; draft i of a chain, once chosen, becomes row offset + i of its session.
struct PilotfishChainStep {
  int64_t chains;
  int64_t depth;           // the most drafts of a chain
  const int64_t* depths;   // [chains]
  const float* states;     // [chains][hidden]
  const float* cosines;    // [chains][depth][turned / 2]
  const float* sines;      // [chains][depth][turned / 2]
  int64_t window;
  const int64_t* offsets;     // [chains]
  const int64_t* capacities;  // [layers][chains]
  float* const* keys;         // [layers][chains]
  float* const* values;       // [layers][chains]
  int64_t* drafts;            // [chains][depth]
  float* tops;                // [chains][depth] the drafts' logits; NaN where a logit is none
};

int64_t pilotfish_abi();
// Null where the machine has no memory or no threads for it.
void* pilotfish_create(const PilotfishModel*, const PilotfishLayer*, int64_t threads);
void pilotfish_destroy(void*);
// 0; or, with nothing written, 1: a position outside the table, 2: a token outside the vocabulary,
// 3: no memory for so many rows.
int64_t pilotfish_forward(void*, const PilotfishStep*);

// Threads for linear maps and single layers; null where there is no memory or no threads for it.
void* pilotfish_crew(int64_t threads);
void pilotfish_crew_end(void*);
// x [rows][stride], out [rows][out padded to 16]. 0, or 3 as above.
int64_t pilotfish_linear(void*, const PilotfishLinear*, int64_t rows, const float* x,
                         int64_t stride, float* out);
// 0, or 3 as above.
int64_t pilotfish_layer(void*, const PilotfishDraftLayer*, const PilotfishDraftStep*);
// 0, or 3 as above.
int64_t pilotfish_chain(void*, const PilotfishChain*, const PilotfishChainStep*);
// RMS norm of rows [rows][size], size being a multiple of eight, on the caller's thread.
void pilotfish_norm(int64_t rows, int64_t size, const float* x, const float* weight, float epsilon,
                    float* out);
}

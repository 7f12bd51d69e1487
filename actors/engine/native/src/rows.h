// What happens to one row alone: norms, rotary positions, the gate.
#pragma once

#include <cmath>

#include "simd.h"

namespace pilotfish {

// RMS norm over n values (a multiple of eight): rounded, scaled, rounded, as Llama does it.
template <class T>
inline void rms_norm(const float* x, const float* weight, long n, float epsilon, float* out) {
  Lanes squares = splat(0.0f);
  for (long i = 0; i < n; i += LANES) {
    const Lanes v = load(x + i);
    squares += v * v;
  }
  const Lanes factor = splat(1.0f / std::sqrt(sum(squares) / float(n) + epsilon));
  for (long i = 0; i < n; i += LANES)
    store(out + i, as<T>(load(weight + i) * as<T>(load(x + i) * factor)));
}

// x cos + rotate_half(x) sin, in place.
template <class T>
inline void rotate(float* x, const float* cosine, const float* sine, long head_dim) {
  const long half = head_dim / 2;
  for (long i = 0; i < half; ++i) {
    const float a = x[i], b = x[i + half];
    x[i] = a * cosine[i] - b * sine[i];
    x[i + half] = b * cosine[i + half] + a * sine[i + half];
  }
  for (long i = 0; i < head_dim; i += LANES) store(x + i, as<T>(load(x + i)));
}

// silu(gate) * up over one panel pair.
template <class T>
inline Lanes gated(Lanes gate, Lanes up) {
  const Lanes g = as<T>(gate);
  const Lanes silu = as<T>(g / (splat(1.0f) + exponential(-g)));
  return as<T>(silu * as<T>(up));
}

}  // namespace pilotfish

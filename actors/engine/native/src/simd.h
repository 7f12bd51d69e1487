// Eight float lanes, written with the compiler's vector extension: the same code for AVX2, AVX-512
// and NEON. Each lane does the same operations in the same order on every path, which is what makes
// a row's bits independent of its neighbours.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace pilotfish {

constexpr int LANES = 8;
typedef float Lanes __attribute__((vector_size(32)));
typedef int32_t Ints __attribute__((vector_size(32)));
typedef uint32_t Bits __attribute__((vector_size(32)));
typedef uint16_t Halves __attribute__((vector_size(16)));

// A bfloat16 is the upper half of a float.
struct bf16 {
  uint16_t bits;
};

// Columns that one register holds: their sums are chains of their own, so how many go side by side
// changes no bit.
#if defined(__AVX512F__)
typedef float Wide __attribute__((vector_size(64)));
typedef uint32_t WideBits __attribute__((vector_size(64)));
constexpr int REGISTERS = 32;
#else
typedef Lanes Wide;
constexpr int REGISTERS = 16;
#endif
constexpr int WIDE = int(sizeof(Wide) / sizeof(float));

inline Lanes splat(float x) { return Lanes{x, x, x, x, x, x, x, x}; }

inline Wide wide_splat(float x) {
  return x - Wide{};
}

inline Wide wide_load(const float* p) {
  Wide v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

inline void wide_store(float* p, Wide v) { std::memcpy(p, &v, sizeof v); }

inline Lanes load(const float* p) {
  Lanes v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

inline Lanes load(const bf16* p) {
  Halves h;
  std::memcpy(&h, p, sizeof h);
  return (Lanes)(__builtin_convertvector(h, Bits) << 16);
}

inline void store(float* p, Lanes v) { std::memcpy(p, &v, sizeof v); }

// Round to the nearest bfloat16, ties to even; a NaN stays a NaN.
inline Lanes rounded(Lanes v) {
  const Bits u = (Bits)v;
  const Bits near = (u + 0x7fffu + ((u >> 16) & 1u)) & 0xffff0000u;
  const Ints sound = v == v;
  return (Lanes)(((Bits)sound & near) | (~(Bits)sound & 0x7fc00000u));
}

inline void store(bf16* p, Lanes v) {
  const Halves h = __builtin_convertvector((Bits)rounded(v) >> 16, Halves);
  std::memcpy(p, &h, sizeof h);
}

// What a value of the model's type would hold: rounded for bf16, as it is for float.
template <class T>
inline Lanes as(Lanes v);
template <>
inline Lanes as<bf16>(Lanes v) {
  return rounded(v);
}
template <>
inline Lanes as<float>(Lanes v) {
  return v;
}

inline float sum(Lanes v) {
  return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

inline float largest(Lanes v) {
  float m = v[0];
  for (int i = 1; i < LANES; ++i) m = v[i] > m ? v[i] : m;
  return m;
}

inline Lanes pick(Ints mask, Lanes yes, Lanes no) {
  return (Lanes)(((Bits)mask & (Bits)yes) | (~(Bits)mask & (Bits)no));
}

// e^x to about 2 units in the last place: x = n ln 2 + r, a polynomial for r, n into the exponent.
// Below -87 the result is 0, above 88 it is clamped.
inline Lanes exponential(Lanes x) {
  const Ints tiny = x < splat(-87.0f);
  Lanes c = pick(x > splat(88.0f), splat(88.0f), x);
  c = pick(tiny, splat(-87.0f), c);
  const Lanes magic = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const Lanes n = (c * splat(1.44269504f) + magic) - magic;
  Lanes r = c - n * splat(0.693359375f);
  r = r - n * splat(-2.12194440e-4f);
  Lanes p = splat(1.9875691500e-4f);
  p = p * r + splat(1.3981999507e-3f);
  p = p * r + splat(8.3334519073e-3f);
  p = p * r + splat(4.1665795894e-2f);
  p = p * r + splat(1.6666665459e-1f);
  p = p * r + splat(5.0000001201e-1f);
  p = p * (r * r) + r + splat(1.0f);
  const Bits power = ((Bits)__builtin_convertvector(n, Ints) + 127u) << 23;
  const Lanes e = p * (Lanes)power;
  const Ints number = x == x;
  return pick(number, pick(tiny, splat(0.0f), e), x);
}

// Sums of eight vectors as the lanes of one: a transposing tree of additions.
inline Lanes sums(const Lanes* v) {
  Lanes a[4], b[2];
  for (int i = 0; i < 4; ++i) {
    a[i] = __builtin_shufflevector(v[2 * i], v[2 * i + 1], 0, 8, 2, 10, 4, 12, 6, 14) +
           __builtin_shufflevector(v[2 * i], v[2 * i + 1], 1, 9, 3, 11, 5, 13, 7, 15);
  }
  for (int i = 0; i < 2; ++i) {
    b[i] = __builtin_shufflevector(a[2 * i], a[2 * i + 1], 0, 1, 8, 9, 4, 5, 12, 13) +
           __builtin_shufflevector(a[2 * i], a[2 * i + 1], 2, 3, 10, 11, 6, 7, 14, 15);
  }
  return __builtin_shufflevector(b[0], b[1], 0, 1, 2, 3, 8, 9, 10, 11) +
         __builtin_shufflevector(b[0], b[1], 4, 5, 6, 7, 12, 13, 14, 15);
}

}  // namespace pilotfish

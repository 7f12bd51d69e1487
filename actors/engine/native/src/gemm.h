// rows x weights, for weights packed in panels of 16 output columns: panel[k][16].
//
// Every output is one chain of fused multiply-adds over k = 0 … K-1, whatever the number of rows,
// the panels taken together or the thread: a row's result never depends on the batch. (The compiler
// is told to contract a * b + c, `-ffp-contract=fast`; the tests compare the instances' bits.)
#pragma once

#include <algorithm>
#include <limits>
#include <type_traits>

#include "simd.h"

namespace pilotfish {

constexpr int PANEL = 16;
constexpr int HALVES = PANEL / WIDE;         // registers that hold a panel's columns
constexpr int SUMS = 3 * REGISTERS / 4;      // registers that sum up; the rest hold what is summed
constexpr int MOST_ROWS = SUMS / 2;          // of one tile
constexpr int MOST_PANELS = 4;               // of one tile
constexpr int AHEAD = 48;           // steps of k a panel is asked for before it is read
// Rows from which a bf16 panel is widened once and reused: never where that is two operations for
// all of its columns, which takes less than reading twice as many bytes.
constexpr int EXPAND_FROM = HALVES == 1 ? std::numeric_limits<int>::max() : 13;
constexpr int ROW_BLOCK_BYTES = 256 * 1024;  // of activations that stay in the second-level cache

// The 16 columns of one k. bf16 columns j and j+8 share a 32-bit word: one shift, one mask.
inline void columns(const float* p, Wide* to) {
  to[0] = wide_load(p);
  if constexpr (HALVES == 2) to[1] = wide_load(p + WIDE);
}

inline void columns(const bf16* p, Wide* to) {
#if defined(__AVX512F__)
  constexpr WideBits UP = {16, 16, 16, 16, 16, 16, 16, 16};
  const __m256i w = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  to[0] = (Wide)(((WideBits)_mm512_broadcast_i64x4(w) << UP) & 0xffff0000u);
#else
  Bits w;
  std::memcpy(&w, p, sizeof w);
  to[0] = (Lanes)(w << 16);
  to[1] = (Lanes)(w & 0xffff0000u);
#endif
}

template <class W, int M, int P>
inline void tile(const float* a, long lda, const W* w, long k_len, float* out, long ldo) {
  Wide acc[M][HALVES * P] = {};
  for (long k = 0; k < k_len; ++k) {
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) {
      Wide cols[HALVES];
      const W* at = w + (p * k_len + k) * PANEL;
      __builtin_prefetch(at + AHEAD * PANEL);  // the next panel's, at a panel's end
      columns(at, cols);
#pragma GCC unroll 16
      for (int m = 0; m < M; ++m) {
        const Wide x = wide_splat(a[m * lda + k]);
#pragma GCC unroll 2
        for (int h = 0; h < HALVES; ++h) acc[m][HALVES * p + h] += x * cols[h];
      }
    }
  }
  for (int m = 0; m < M; ++m) {
    for (int i = 0; i < HALVES * P; ++i) wide_store(out + m * ldo + i * WIDE, acc[m][i]);
  }
}

// Calls work with 1 … MOST_ROWS as a constant.
template <int M = MOST_ROWS, class Work>
inline void with_rows(int rows, Work work) {
  if constexpr (M > 1) {
    if (rows < M) return with_rows<M - 1>(rows, work);
  }
  work(std::integral_constant<int, M>());
}

// All rows of one panel, in tiles as even as they go (7 = 4 + 3, not 6 + 1).
template <class W>
inline void panel(int rows, const float* a, long lda, const W* w, long k_len, float* out,
                  long ldo) {
  int tiles = (rows + MOST_ROWS - 1) / MOST_ROWS;
  for (int done = 0; done < rows; --tiles) {
    const int now = (rows - done + tiles - 1) / tiles;
    with_rows(now, [&](auto m) {
      tile<W, m, 1>(a + done * lda, lda, w, k_len, out + done * ldo, ldo);
    });
    done += now;
  }
}

inline void widen(const bf16* w, long k_len, float* out) {
  for (long k = 0; k < k_len; ++k) {
    Wide cols[HALVES];
    columns(w + k * PANEL, cols);
    wide_store(out + k * PANEL, cols[0]);
    if constexpr (HALVES == 2) wide_store(out + k * PANEL + WIDE, cols[1]);
  }
}

template <class W>
struct Weights {
  const W* packed;  // [panels][k][16]
  long k;
  const float* bias;  // [panels * 16] or null

  const W* at(long panel) const { return packed + panel * k * PANEL; }
};

// out[row][16 * panel …] for panels first … last-1, without bias. scratch: k * 16 floats.
inline void multiply_wide(int rows, const float* a, long lda, const Weights<bf16>& w, long first,
                          long last, float* out, long ldo, float* scratch) {
  for (long p = first; p < last; ++p) {
    widen(w.at(p), w.k, scratch);
    panel(rows, a, lda, scratch, w.k, out + p * PANEL, ldo);
  }
}

inline void multiply_wide(int rows, const float* a, long lda, const Weights<float>& w, long first,
                          long last, float* out, long ldo, float*) {
  for (long p = first; p < last; ++p) panel(rows, a, lda, w.at(p), w.k, out + p * PANEL, ldo);
}

template <class W>
inline void multiply(int rows, const float* a, long lda, const Weights<W>& w, long first, long last,
                     float* out, long ldo, float* scratch) {
  if (rows >= EXPAND_FROM) {
    const long fit = ROW_BLOCK_BYTES / (long(sizeof(float)) * w.k) / MOST_ROWS * MOST_ROWS;
    const int block = int(std::max<long>(4 * MOST_ROWS, fit));
    for (int r = 0; r < rows; r += block) {
      const int now = std::min(block, rows - r);
      multiply_wide(now, a + r * lda, lda, w, first, last, out + r * ldo, ldo, scratch);
    }
    return;
  }
  long p = first;
  if (rows <= MOST_ROWS) {  // several panels at once keep enough multiply-adds in flight
    with_rows(rows, [&](auto m) {
      constexpr int P = std::min(MOST_PANELS, SUMS / (HALVES * m));
      for (; p + P <= last; p += P) tile<W, m, P>(a, lda, w.at(p), w.k, out + p * PANEL, ldo);
    });
  }
  for (; p < last; ++p) panel(rows, a, lda, w.at(p), w.k, out + p * PANEL, ldo);
}

}  // namespace pilotfish

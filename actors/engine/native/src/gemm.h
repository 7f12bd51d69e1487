// rows x weights, for weights packed in panels of 16 output columns: panel[k][16].
//
// Every output is one chain of fused multiply-adds over k = 0 … K-1, whatever the number of rows,
// the panels taken together or the thread: a row's result never depends on the batch. (The compiler
// is told to contract a * b + c, `-ffp-contract=fast`; the tests compare the instances' bits.)
#pragma once

#include <algorithm>

#include "simd.h"

namespace pilotfish {

constexpr int PANEL = 16;
constexpr int MOST_ROWS = 6;        // of one tile: 12 accumulators of 16 registers
constexpr int AHEAD = 48;           // steps of k a panel is asked for before it is read
constexpr int EXPAND_FROM = 13;     // rows from which a bf16 panel is widened once and reused
constexpr int ROW_BLOCK_BYTES = 256 * 1024;  // of activations that stay in the second-level cache

// The 16 columns of one k. bf16 columns j and j+8 share a 32-bit word: one shift, one mask.
inline void columns(const float* p, Lanes& low, Lanes& high) {
  low = load(p);
  high = load(p + LANES);
}

inline void columns(const bf16* p, Lanes& low, Lanes& high) {
  Bits w;
  std::memcpy(&w, p, sizeof w);
  low = (Lanes)(w << 16);
  high = (Lanes)(w & 0xffff0000u);
}

template <class W, int M, int P>
inline void tile(const float* a, long lda, const W* w, long k_len, float* out, long ldo) {
  Lanes acc[M][2 * P] = {};
  for (long k = 0; k < k_len; ++k) {
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) {
      Lanes low, high;
      const W* at = w + (p * k_len + k) * PANEL;
      __builtin_prefetch(at + AHEAD * PANEL);  // the next panel's, at a panel's end
      columns(at, low, high);
#pragma GCC unroll 8
      for (int m = 0; m < M; ++m) {
        const Lanes x = splat(a[m * lda + k]);
        acc[m][2 * p] += x * low;
        acc[m][2 * p + 1] += x * high;
      }
    }
  }
  for (int m = 0; m < M; ++m) {
    for (int p = 0; p < 2 * P; ++p) store(out + m * ldo + p * LANES, acc[m][p]);
  }
}

template <class W>
inline void rows_of_panel(int rows, const float* a, long lda, const W* w, long k_len, float* out,
                          long ldo) {
  switch (rows) {
    case 1: return tile<W, 1, 1>(a, lda, w, k_len, out, ldo);
    case 2: return tile<W, 2, 1>(a, lda, w, k_len, out, ldo);
    case 3: return tile<W, 3, 1>(a, lda, w, k_len, out, ldo);
    case 4: return tile<W, 4, 1>(a, lda, w, k_len, out, ldo);
    case 5: return tile<W, 5, 1>(a, lda, w, k_len, out, ldo);
    default: return tile<W, 6, 1>(a, lda, w, k_len, out, ldo);
  }
}

// All rows of one panel, in tiles as even as they go (7 = 4 + 3, not 6 + 1).
template <class W>
inline void panel(int rows, const float* a, long lda, const W* w, long k_len, float* out,
                  long ldo) {
  int tiles = (rows + MOST_ROWS - 1) / MOST_ROWS;
  for (int done = 0; done < rows; --tiles) {
    const int now = (rows - done + tiles - 1) / tiles;
    rows_of_panel(now, a + done * lda, lda, w, k_len, out + done * ldo, ldo);
    done += now;
  }
}

inline void widen(const bf16* w, long k_len, float* out) {
  for (long k = 0; k < k_len; ++k) {
    Lanes low, high;
    columns(w + k * PANEL, low, high);
    store(out + k * PANEL, low);
    store(out + k * PANEL + LANES, high);
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

template <class W, int M, int P>
inline long several(const float* a, long lda, const Weights<W>& w, long p, long last, float* out,
                    long ldo) {
  for (; p + P <= last; p += P) tile<W, M, P>(a, lda, w.at(p), w.k, out + p * PANEL, ldo);
  return p;
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
  // Few rows: several panels at once keep enough multiply-adds in flight.
  long p = first;
  if (rows == 1) p = several<W, 1, 4>(a, lda, w, p, last, out, ldo);
  if (rows == 2) p = several<W, 2, 3>(a, lda, w, p, last, out, ldo);
  if (rows == 3) p = several<W, 3, 2>(a, lda, w, p, last, out, ldo);
  for (; p < last; ++p) panel(rows, a, lda, w.at(p), w.k, out + p * PANEL, ldo);
}

}  // namespace pilotfish

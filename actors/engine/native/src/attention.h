// Attention of a few rows of one sequence and the query heads of one KV head, over paged keys.
//
// A row walks its keys in tiles that start at multiples of TILE, with a running maximum and sum
// (online softmax, arXiv 1805.02867). Tiles lie on absolute positions and a row looks at nothing
// else, so its bits depend neither on the rows beside it nor on where a chunk began.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "abi.h"
#include "room.h"
#include "simd.h"

namespace pilotfish {

constexpr int TILE = 32;
constexpr int QUERIES = 48;  // of one task: rows times query heads per KV head, about

// Query heads that share a KV head; a task's queries are [row][head].
struct Group {
  long head_dim;
  long first_head;
  long heads;
  float scale;
  long window;
};

struct AttentionScratch {
  Room keys, values;                     // [TILE][head_dim]
  Room acc;                              // [queries][head_dim]
  Room most;                             // [queries] running maximum
  std::vector<Lanes> total;              // [queries] running sum, lane by lane

  // Room for as many queries; may throw, and nothing below does.
  void fit(long queries, long head_dim) {
    keys.resize(TILE * head_dim);
    values.resize(TILE * head_dim);
    acc.resize(queries * head_dim);
    most.resize(queries);
    total.resize(queries);
  }

  void clear(long queries, long head_dim) {
    std::fill_n(acc.begin(), queries * head_dim, 0.0f);
    std::fill_n(most.begin(), queries, -INFINITY);
    std::fill_n(total.begin(), queries, splat(0.0f));
  }
};

// DIM: the head size where it is a common one, so that every offset is a constant; else 0.
template <int DIM>
inline void scores(const float* query, const float* keys, long any_dim, long first, long valid,
                   float scale, float* out) {
  const long head_dim = DIM ? DIM : any_dim;
  const long groups = (valid + LANES - 1) / LANES;
  for (long g = first / LANES; g < groups; ++g) {
    Lanes acc[LANES] = {};
    const float* k = keys + g * LANES * head_dim;
    for (long d = 0; d < head_dim; d += LANES) {
      const Lanes q = load(query + d);
#pragma GCC unroll 8
      for (int j = 0; j < LANES; ++j) acc[j] += q * load(k + j * head_dim + d);
    }
    store(out + g * LANES, sums(acc) * splat(scale));
  }
}

// acc[d …] = acc * fade + Σ weight[j] * values[j][d …] for V vectors of eight.
template <int V, int DIM>
inline void weigh(const float* weight, const float* values, long any_dim, long first, long valid,
                  float fade, float* acc) {
  const long stride = DIM ? DIM : any_dim;
  Lanes sum[V];
#pragma GCC unroll 8
  for (int i = 0; i < V; ++i) sum[i] = load(acc + i * LANES) * splat(fade);
  for (long j = first; j < valid; ++j) {
    const Lanes w = splat(weight[j]);
#pragma GCC unroll 8
    for (int i = 0; i < V; ++i) sum[i] += w * load(values + j * stride + i * LANES);
  }
#pragma GCC unroll 8
  for (int i = 0; i < V; ++i) store(acc + i * LANES, sum[i]);
}

// One query against one tile of keys and values [TILE][head_dim]: it sees first … valid-1 of them.
// Keys are read to the next multiple of eight.
template <int DIM>
inline void attend(const Group& group, const float* query, const float* keys, const float* values,
                   long first, long valid, float& most, Lanes& total, float* acc) {
  const long dim = DIM ? DIM : group.head_dim;
  alignas(32) float s[TILE];
  scores<DIM>(query, keys, dim, first, valid, group.scale, s);
  const long begin = first / LANES * LANES, end = (valid + LANES - 1) / LANES * LANES;
  for (long j = begin; j < first; ++j) s[j] = -INFINITY;
  for (long j = valid; j < end; ++j) s[j] = -INFINITY;
  Lanes high = load(s + begin);
  for (long j = begin + LANES; j < end; j += LANES) {
    const Lanes v = load(s + j);
    high = pick(v > high, v, high);
  }
  const float now = std::max(most, largest(high));
  const float fade = exponential(splat(most - now))[0];
  total *= splat(fade);
  for (long j = begin; j < end; j += LANES) {
    const Lanes e = exponential(load(s + j) - splat(now));
    store(s + j, e);
    total += e;
  }
  most = now;
  long d = 0;
  for (; d + 8 * LANES <= dim; d += 8 * LANES)
    weigh<8, DIM>(s, values + d, dim, first, valid, fade, acc + d);
  for (; d + 4 * LANES <= dim; d += 4 * LANES)
    weigh<4, DIM>(s, values + d, dim, first, valid, fade, acc + d);
  for (; d < dim; d += LANES) weigh<1, DIM>(s, values + d, dim, first, valid, fade, acc + d);
}

template <class T>
inline void read_tile(const T* pool, const int64_t* slots, long kv_heads, long kv_head, long dim,
                      long count, float* out) {
  for (long j = 0; j < count; ++j) {
    const T* row = pool + (slots[j] * kv_heads + kv_head) * dim;
    for (long d = 0; d < dim; d += LANES) store(out + j * dim + d, load(row + d));
  }
}

// The weighed values of rows row0 … row1-1, divided by their sums of weights.
template <class T>
inline void settle(const Group& group, long row0, long row1, long dim,
                   const AttentionScratch& scratch, float* out, long out_stride) {
  for (long q = 0; q < (row1 - row0) * group.heads; ++q) {
    const Lanes share = splat(1.0f / sum(scratch.total[q]));
    float* to = out + (row0 + q / group.heads) * out_stride +
                (group.first_head + q % group.heads) * dim;
    for (long d = 0; d < dim; d += LANES)
      store(to + d, as<T>(load(scratch.acc.data() + q * dim + d) * share));
  }
}

// Rows row0 … row1-1 (of one span, at consecutive positions) and the queries of one KV head.
// slots: of the sequence's tokens. queries: [rows][stride], head h at h * head_dim; out: [rows][out_stride], rounded to T.
template <class T, int DIM>
inline void attend_rows(const Group& group, long row0, long row1, const int64_t* positions,
                        const float* queries, long stride, const T* keys, const T* values,
                        const int64_t* slots, long kv_heads, long kv_head, float* out,
                        long out_stride, AttentionScratch& scratch) {
  const long dim = DIM ? DIM : group.head_dim;
  scratch.clear((row1 - row0) * group.heads, dim);
  const auto start = [&](long row) {
    return group.window ? std::max<long>(0, positions[row] - group.window + 1) : 0;
  };
  const long last = positions[row1 - 1];
  for (long from = start(row0) / TILE * TILE; from <= last; from += TILE) {
    const long count = std::min<long>(TILE, last + 1 - from);
    read_tile(keys, slots + from, kv_heads, kv_head, dim, count, scratch.keys.data());
    read_tile(values, slots + from, kv_heads, kv_head, dim, count, scratch.values.data());
    for (long row = row0; row < row1; ++row) {
      const long valid = std::min<long>(count, positions[row] + 1 - from);
      const long first = std::max<long>(0, start(row) - from);
      if (first >= valid) continue;
      for (long h = 0; h < group.heads; ++h) {
        const long q = (row - row0) * group.heads + h;
        attend<DIM>(group, queries + row * stride + (group.first_head + h) * dim,
                    scratch.keys.data(), scratch.values.data(), first, valid, scratch.most[q],
                    scratch.total[q], scratch.acc.data() + q * dim);
      }
    }
  }
  settle<T>(group, row0, row1, dim, scratch, out, out_stride);
}

}  // namespace pilotfish

// One decoder layer of a small model (a drafter): weights in T, everything else in float32, keys and
// values session by session. A row's result depends on its own session alone.
#pragma once

#include "linear.h"
#include "rows.h"

namespace pilotfish {

template <class T>
class LayerWalk {
 public:
  LayerWalk(Crew& crew, const PilotfishDraftLayer& layer, const PilotfishDraftStep& step)
      : crew_(crew), l_(layer), s_(step) {
    query_ = l_.heads * l_.head_dim;
    qkv_ = query_ + 2 * l_.kv_heads * l_.head_dim;
    wide_ = s_.beside ? 2 * l_.hidden : l_.hidden;
  }

  void run() {
    const auto lock = crew_.turn();
    fit();
    const long products = wide_ * qkv_ + query_ * l_.hidden + 3 * l_.hidden * l_.inter;
    crew_.run(products * s_.rows, [&](Phase* p, Crew::Member& me) { walk(p, me); });
  }

 private:
  struct Task {
    long span, row0, row1;
  };

  static long padded(long n) { return (n + PANEL - 1) / PANEL * PANEL; }

  void fit() {
    const size_t rows = size_t(s_.rows);
    normed_ = crew_.room(0, rows * wide_);
    projected_ = crew_.room(1, rows * padded(std::max<long>(qkv_, 2 * padded(l_.inter))));
    mixed_ = crew_.room(2, rows * padded(std::max<long>(query_, l_.inter)));
    added_ = crew_.room(3, rows * padded(l_.hidden));
    crew_.fit_panels(std::max<long>({wide_, l_.inter, query_}));
    const long group = l_.heads / l_.kv_heads;
    const long most = std::max<long>(1, QUERIES / group);  // rows of one task
    for (auto& member : crew_.members()) member.attention.fit(most * group, l_.head_dim);
    for (long s = 0; s < s_.spans; ++s) {
      for (long r = s_.starts[s]; r < s_.stops[s]; r += most)
        tasks_.push_back({s, r, std::min<long>(r + most, s_.stops[s])});
    }
    span_.resize(rows);
    for (long s = 0; s < s_.spans; ++s)
      for (long r = s_.starts[s]; r < s_.stops[s]; ++r) span_[r] = s;
  }

  void walk(Phase* phase, Crew::Member& me) {
    crew_.each(phase[0], s_.rows, [&](long r) { enter(r); });
    product(phase[1], me, l_.qkv, wide_, normed_, wide_, panels(qkv_), projected_,
            padded(qkv_), [&](long first, long last) {
              if (l_.qkv_bias)
                add_bias(s_.rows, l_.qkv_bias, first, last, projected_, padded(qkv_));
            });
    crew_.each(phase[2], s_.rows, [&](long r) { place(r); });
    attention(phase[3], me);
    join(phase[4], me, l_.out, query_, padded(query_));
    crew_.each(phase[5], s_.rows, [&](long r) {
      rms_norm<float>(s_.out + r * l_.hidden, l_.mlp_norm, l_.hidden, l_.epsilon,
                      &normed_[r * l_.hidden]);
    });
    gate(phase[6], me);
    join(phase[7], me, l_.down, l_.inter, padded(l_.inter));
  }

  static long panels(long n) { return padded(n) / PANEL; }

  // rows x weights [inner → panels], panel by panel; `after` sees those that are done.
  template <class After>
  void product(Phase& phase, Crew::Member& me, const void* weights, long inner, const float* a,
               long lda, long count, float* out, long stride, After after) {
    const Weights<T> w{static_cast<const T*>(weights), inner, nullptr};
    phase.deal(count, crew_.grain(count, s_.rows), [&](long first, long last) {
      multiply(int(s_.rows), a, lda, w, first, last, out, stride, me.panel.data());
      after(first, last);
    });
  }

  // Norms a row's inputs; the residual stream begins in `out`.
  void enter(long row) {
    const float* x = s_.x + row * l_.hidden;
    float* at = &normed_[row * wide_];
    if (s_.beside) {
      rms_norm<float>(s_.beside + row * l_.hidden, l_.beside_norm, l_.hidden, l_.epsilon, at);
      at += l_.hidden;
    }
    rms_norm<float>(x, l_.input_norm, l_.hidden, l_.epsilon, at);
    std::memcpy(s_.out + row * l_.hidden, l_.normed_residual ? at : x,
                size_t(l_.hidden) * sizeof(float));
  }

  // Norms and turns a row's queries and keys; writes its keys and values behind its session's.
  void place(long row) {
    const long dim = l_.head_dim, span = span_[row];
    const long to = s_.offsets[span] + row - s_.starts[span];
    float* x = &projected_[row * padded(qkv_)];
    for (long h = 0; h < l_.heads + l_.kv_heads; ++h) {
      const float* weight = h < l_.heads ? l_.query_norm : l_.key_norm;
      if (weight) rms_norm<float>(x + h * dim, weight, dim, l_.epsilon, x + h * dim);
      turn(x + h * dim, row);
    }
    for (long h = 0; h < l_.kv_heads; ++h) {
      const long at = (h * s_.capacities[span] + to) * dim;
      const float* key = x + query_ + h * dim;
      std::memcpy(s_.keys[span] + at, key, size_t(dim) * sizeof(float));
      std::memcpy(s_.values[span] + at, key + l_.kv_heads * dim, size_t(dim) * sizeof(float));
    }
  }

  void turn(float* x, long row) const {
    const long half = l_.turned / 2;
    const float* cosine = s_.cosines + row * half;
    const float* sine = s_.sines + row * half;
    const long step = l_.interleaved ? 2 : 1, apart = l_.interleaved ? 1 : half;
    for (long i = 0; i < half; ++i) {
      float& a = x[i * step];
      float& b = x[i * step + apart];
      const float was = a;
      a = was * cosine[i] - b * sine[i];
      b = b * cosine[i] + was * sine[i];
    }
  }

  void attention(Phase& phase, Crew::Member& me) {
    phase.deal(long(tasks_.size()) * l_.kv_heads, 1, [&](long unit, long) {
      const Task& task = tasks_[tasks_.size() - 1 - unit / l_.kv_heads];  // the longest first
      if (l_.head_dim == 64) return attend_task<64>(task, unit % l_.kv_heads, me.attention);
      if (l_.head_dim == 128) return attend_task<128>(task, unit % l_.kv_heads, me.attention);
      attend_task<0>(task, unit % l_.kv_heads, me.attention);
    });
  }

  // The keys of its session that a row sees: first … last-1.
  long first_of(long row) const {
    const long own = s_.offsets[span_[row]] + row - s_.starts[span_[row]];
    return s_.window ? std::max<long>(0, own - s_.window + 1) : 0;
  }

  long last_of(long row) const {
    const long span = span_[row], own = s_.offsets[span] + row - s_.starts[span];
    if (s_.causal) return own + 1;
    const long all = s_.offsets[span] + s_.stops[span] - s_.starts[span];
    return s_.window ? std::min<long>(all, own + s_.window) : all;
  }

  template <int DIM>
  void attend_task(const Task& task, long kv_head, AttentionScratch& scratch) {
    const long dim = DIM ? DIM : l_.head_dim, heads = l_.heads / l_.kv_heads;
    const Group group{dim, kv_head * heads, heads, l_.scale, 0};
    const float* keys = s_.keys[task.span] + kv_head * s_.capacities[task.span] * dim;
    const float* values = s_.values[task.span] + kv_head * s_.capacities[task.span] * dim;
    scratch.clear((task.row1 - task.row0) * heads, dim);
    const long end = last_of(task.row1 - 1);
    for (long from = first_of(task.row0) / TILE * TILE; from < end; from += TILE) {
      for (long row = task.row0; row < task.row1; ++row) {
        const long first = std::max<long>(0, first_of(row) - from);
        const long valid = std::min<long>(TILE, last_of(row) - from);
        if (first >= valid) continue;
        for (long h = 0; h < heads; ++h) {
          const long q = (row - task.row0) * heads + h;
          attend<DIM>(group, &projected_[row * padded(qkv_) + (group.first_head + h) * dim],
                      keys + from * dim, values + from * dim, first, valid, scratch.most[q],
                      scratch.total[q], scratch.acc.data() + q * dim);
        }
      }
    }
    settle<float>(group, task.row0, task.row1, dim, scratch, mixed_, padded(query_));
  }

  // The residual stream plus a projection of `mixed_`.
  void join(Phase& phase, Crew::Member& me, const void* weights, long inner, long lda) {
    const long stride = padded(l_.hidden);
    product(phase, me, weights, inner, mixed_, lda, panels(l_.hidden), added_,
            stride, [&](long first, long last) {
              const long stop = std::min<long>(last * PANEL, l_.hidden);
              for (long r = 0; r < s_.rows; ++r) {
                for (long i = first * PANEL; i < stop; i += LANES) {
                  float* at = s_.out + r * l_.hidden + i;
                  store(at, load(at) + load(&added_[r * stride + i]));
                }
              }
            });
  }

  // Panels come in pairs, gate then up; each pair is one panel of the MLP's middle.
  void gate(Phase& phase, Crew::Member& me) {
    const Weights<T> w{static_cast<const T*>(l_.gate_up), l_.hidden, nullptr};
    const long pairs = panels(l_.inter), stride = 2 * padded(l_.inter);
    phase.deal(pairs, crew_.grain(pairs, s_.rows), [&](long first, long last) {
      multiply(int(s_.rows), normed_, l_.hidden, w, 2 * first, 2 * last, projected_,
               stride, me.panel.data());
      for (long r = 0; r < s_.rows; ++r) {
        for (long p = first; p < last; ++p) {
          const float* from = &projected_[r * stride + 2 * p * PANEL];
          float* to = &mixed_[r * padded(l_.inter) + p * PANEL];
          for (long i = 0; i < PANEL; i += LANES)
            store(to + i, gated<float>(load(from + i), load(from + PANEL + i)));
        }
      }
    });
  }

  Crew& crew_;
  const PilotfishDraftLayer& l_;
  const PilotfishDraftStep& s_;
  long query_ = 0, qkv_ = 0, wide_ = 0;
  std::vector<Task> tasks_;
  std::vector<long> span_;  // [rows] the span of each
  float* normed_ = nullptr;     // [rows][wide], then [rows][hidden]
  float* projected_ = nullptr;  // [rows][qkv], then [rows][2 inter]
  float* mixed_ = nullptr;      // [rows][heads * head_dim], then [rows][inter]
  float* added_ = nullptr;      // [rows][hidden] what a projection adds
};

}  // namespace pilotfish

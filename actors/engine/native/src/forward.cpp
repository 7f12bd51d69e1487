// A dense decoder (Llama, Mistral, Qwen2, Qwen3) over packed rows and a paged cache, on the CPU.
//
// One call is one step of the engine. The team walks through the phases together; within a phase
// the work is dealt out by tickets, so a core that is busy elsewhere does less.
#include <algorithm>
#include <exception>
#include <memory>

#include "abi.h"
#include "attention.h"
#include "gemm.h"
#include "rows.h"
#include "team.h"

namespace pilotfish {
namespace {

constexpr int64_t ABI = 6;
constexpr int64_t BAD_POSITION = 1, BAD_TOKEN = 2, NO_MEMORY = 3;

long padded(long n) { return (n + PANEL - 1) / PANEL * PANEL; }
long panels(long n) { return padded(n) / PANEL; }
// Floats from one intermediate row to the next: an odd number of cache lines, so that the rows of a
// tile, which are read side by side, lie in different sets of the first-level cache.
long apart(long n) { return (panels(n) | 1) * PANEL; }

class Executor {
 public:
  virtual ~Executor() = default;
  virtual int64_t forward(const PilotfishStep& step) = 0;
};

template <class T>
class Decoder final : public Executor {
 public:
  Decoder(const PilotfishModel& model, const PilotfishLayer* layers, int threads)
      : m_(model), layers_(layers, layers + model.layers), team_(threads), members_(threads) {
    query_ = m_.heads * m_.head_dim;
    qkv_ = query_ + 2 * m_.kv_heads * m_.head_dim;
    phases_ = std::make_unique<Phase[]>(phases());
  }

  int64_t forward(const PilotfishStep& step) override {
    for (long r = 0; r < step.rows; ++r) {
      if (step.positions[r] < 0 || step.positions[r] >= m_.max_positions) return BAD_POSITION;
      if (step.ids[r] < 0 || step.ids[r] >= m_.tokens) return BAD_TOKEN;
    }
    fit(step);
    team_.run([&](int member) { walk(step, members_[member]); });
    return 0;
  }

 private:
  static constexpr long IN_LAYER = 9, OUTSIDE = 3;

  long phases() const { return IN_LAYER * m_.layers + OUTSIDE; }

  struct Member {
    AttentionScratch attention;
    Room panel;
  };

  struct Task {
    long span, row0, row1;
  };

  void fit(const PilotfishStep& step) {
    const size_t rows = size_t(step.rows);
    hidden_.resize(rows * apart(m_.hidden));
    normed_.resize(rows * apart(m_.hidden));
    projected_.resize(rows * apart(std::max<long>(qkv_, 2 * padded(m_.inter))));
    mixed_.resize(rows * apart(std::max<long>(query_, m_.inter)));
    const long group = m_.heads / m_.kv_heads;
    const long most = std::max<long>(1, QUERIES / group);  // rows of one task
    for (auto& member : members_) {
      member.panel.resize(PANEL * std::max<long>({m_.hidden, m_.inter, query_}));
      member.attention.fit(most * group, m_.head_dim);
    }
    for (long i = 0; i < phases(); ++i) phases_[i].reset();
    tasks_.clear();
    for (long s = 0; s < step.spans; ++s) {
      for (long r = step.starts[s]; r < step.stops[s]; r += most)
        tasks_.push_back({s, r, std::min<long>(r + most, step.stops[s])});
    }
  }

  // Work on rows one by one.
  template <class Work>
  void each(Phase& phase, long rows, Work work) {
    phase.deal(rows, std::max<long>(1, rows / (4 * team_.size())), [&](long first, long last) {
      for (long r = first; r < last; ++r) work(r);
    });
  }

  // Panels taken at a time: two turns a member, more when there is much to balance.
  long grain(long count, long rows) const {
    const long turns = team_.size() * (rows >= EXPAND_FROM ? 6 : 2);
    return std::max<long>(1, (count + turns - 1) / turns);
  }

  void walk(const PilotfishStep& step, Member& me) {
    Phase* phase = phases_.get();
    each(*phase++, step.rows, [&](long r) { embed(step, r); });
    for (long l = 0; l < m_.layers; ++l, phase += IN_LAYER) layer(step, me, l, phase);
    if (step.kept == 0) return;
    each(phase[0], step.kept, [&](long i) {
      rms_norm<T>(&hidden_[step.keep[i] * apart(m_.hidden)], m_.norm, m_.hidden, m_.epsilon,
                  &normed_[i * apart(m_.hidden)]);
    });
    const Weights<T> head{static_cast<const T*>(m_.head), m_.hidden, nullptr};
    const long count = panels(m_.vocab);
    phase[1].deal(count, grain(count, step.kept), [&](long first, long last) {
      multiply(int(step.kept), normed_.data(), apart(m_.hidden), head, first, last, step.logits,
               padded(m_.vocab), me.panel.data());
    });
  }

  void embed(const PilotfishStep& step, long row) {
    const T* from = static_cast<const T*>(m_.embedding) + step.ids[row] * m_.hidden;
    for (long i = 0; i < m_.hidden; i += LANES)
      store(&hidden_[row * apart(m_.hidden) + i], load(from + i));
    tap(step, row, 0);
  }

  static bool tapped(const PilotfishStep& step, long index) {
    return std::find(step.tap, step.tap + step.taps, index) != step.tap + step.taps;
  }

  // Copies a row of the residual stream to its features, where layer boundary `index` is tapped.
  void tap(const PilotfishStep& step, long row, long index) {
    for (long t = 0; t < step.taps; ++t) {
      if (step.tap[t] != index) continue;
      bf16* to = static_cast<bf16*>(step.features) +
                 (step.slots[row] * step.taps + t) * m_.hidden;
      for (long i = 0; i < m_.hidden; i += LANES)
        store(to + i, load(&hidden_[row * apart(m_.hidden) + i]));
    }
  }

  void normalize(const float* weight, long row) {
    rms_norm<T>(&hidden_[row * apart(m_.hidden)], weight, m_.hidden, m_.epsilon,
                &normed_[row * apart(m_.hidden)]);
  }

  void layer(const PilotfishStep& step, Member& me, long index, Phase* phase) {
    const PilotfishLayer& l = layers_[index];
    each(phase[0], step.rows, [&](long r) { normalize(l.attention_norm, r); });
    project_qkv(step, me, l, phase[1]);
    each(phase[2], step.rows, [&](long r) { place(step, l, index, r); });
    attention(step, me, l, index, phase[3]);
    add(step, me, mixed_.data(), apart(query_), {static_cast<const T*>(l.out), query_, l.out_bias},
        phase[4]);
    each(phase[5], step.rows, [&](long r) { normalize(l.mlp_norm, r); });
    gate(step, me, l, phase[6]);
    add(step, me, mixed_.data(), apart(m_.inter),
        {static_cast<const T*>(l.down), m_.inter, nullptr}, phase[7]);
    if (tapped(step, index + 1)) each(phase[8], step.rows, [&](long r) { tap(step, r, index + 1); });
  }

  void project_qkv(const PilotfishStep& step, Member& me, const PilotfishLayer& l, Phase& phase) {
    const Weights<T> w{static_cast<const T*>(l.qkv), m_.hidden, l.qkv_bias};
    const long stride = apart(qkv_), count = panels(qkv_);
    phase.deal(count, grain(count, step.rows), [&](long first, long last) {
      multiply(int(step.rows), normed_.data(), apart(m_.hidden), w, first, last,
               projected_.data(), stride, me.panel.data());
      for (long r = 0; r < step.rows; ++r) {
        for (long i = first * PANEL; i < last * PANEL; i += LANES) {
          float* at = &projected_[r * stride + i];
          const Lanes v = load(at);
          store(at, as<T>(w.bias ? v + load(w.bias + i) : v));
        }
      }
    });
  }

  // Norms and rotates a row's queries and keys; writes its keys and values into the cache.
  void place(const PilotfishStep& step, const PilotfishLayer& l, long index, long row) {
    const long dim = m_.head_dim;
    float* x = &projected_[row * apart(qkv_)];
    const float* cosine = m_.cosines + step.positions[row] * dim;
    const float* sine = m_.sines + step.positions[row] * dim;
    for (long h = 0; h < m_.heads + m_.kv_heads; ++h) {
      const float* weight = h < m_.heads ? l.query_norm : l.key_norm;
      if (weight) rms_norm<T>(x + h * dim, weight, dim, m_.epsilon, x + h * dim);
      rotate<T>(x + h * dim, cosine, sine, dim);
    }
    const long at = step.slots[row] * m_.kv_heads * dim;
    T* keys = static_cast<T*>(step.keys[index]) + at;
    T* values = static_cast<T*>(step.values[index]) + at;
    for (long i = 0; i < m_.kv_heads * dim; i += LANES) {
      store(keys + i, load(x + query_ + i));
      store(values + i, load(x + query_ + m_.kv_heads * dim + i));
    }
  }

  void attention(const PilotfishStep& step, Member& me, const PilotfishLayer& l, long index,
                 Phase& phase) {
    const long group = m_.heads / m_.kv_heads;
    const long units = long(tasks_.size()) * m_.kv_heads;
    phase.deal(units, 1, [&](long from, long) {
      const Task& task = tasks_[tasks_.size() - 1 - from / m_.kv_heads];  // the longest first
      const long kv_head = from % m_.kv_heads;
      const auto rows = m_.head_dim == 64    ? attend_rows<T, 64>
                        : m_.head_dim == 128 ? attend_rows<T, 128>
                                             : attend_rows<T, 0>;
      rows({m_.head_dim, kv_head * group, group, m_.scale, l.window}, task.row0, task.row1,
           step.positions, projected_.data(), apart(qkv_),
           static_cast<const T*>(step.keys[index]), static_cast<const T*>(step.values[index]),
           step.tables[task.span], m_.kv_heads, kv_head, mixed_.data(), apart(query_),
           me.attention);
    });
  }

  // The residual stream plus a projection.
  void add(const PilotfishStep& step, Member& me, const float* a, long lda, const Weights<T>& w,
           Phase& phase) {
    const long stride = apart(m_.hidden), count = panels(m_.hidden);
    phase.deal(count, grain(count, step.rows), [&](long first, long last) {
      multiply(int(step.rows), a, lda, w, first, last, normed_.data(), stride, me.panel.data());
      for (long r = 0; r < step.rows; ++r) {
        for (long i = first * PANEL; i < last * PANEL; i += LANES) {
          const Lanes v = load(&normed_[r * stride + i]);
          const Lanes whole = as<T>(w.bias ? v + load(w.bias + i) : v);
          float* at = &hidden_[r * stride + i];
          store(at, as<T>(load(at) + whole));
        }
      }
    });
  }

  // Panels come in pairs, gate then up; each pair is one panel of the MLP's middle.
  void gate(const PilotfishStep& step, Member& me, const PilotfishLayer& l, Phase& phase) {
    const Weights<T> w{static_cast<const T*>(l.gate_up), m_.hidden, nullptr};
    const long pairs = panels(m_.inter), stride = apart(2 * padded(m_.inter));
    phase.deal(pairs, grain(pairs, step.rows), [&](long first, long last) {
      multiply(int(step.rows), normed_.data(), apart(m_.hidden), w, 2 * first, 2 * last,
               projected_.data(), stride, me.panel.data());
      for (long r = 0; r < step.rows; ++r) {
        for (long p = first; p < last; ++p) {
          const float* from = &projected_[r * stride + 2 * p * PANEL];
          float* to = &mixed_[r * apart(m_.inter) + p * PANEL];
          for (long i = 0; i < PANEL; i += LANES)
            store(to + i, gated<T>(load(from + i), load(from + PANEL + i)));
        }
      }
    });
  }

  const PilotfishModel m_;
  const std::vector<PilotfishLayer> layers_;
  Team team_;
  std::vector<Member> members_;
  long query_ = 0, qkv_ = 0;
  std::unique_ptr<Phase[]> phases_;
  std::vector<Task> tasks_;
  Room hidden_;     // [rows][hidden] the residual stream, values of type T
  Room normed_;     // [rows][hidden] a norm's output; scratch while it is not needed
  Room projected_;  // [rows][qkv] or [rows][2 inter]
  Room mixed_;      // [rows][heads * head_dim] or [rows][inter]
};

}  // namespace
}  // namespace pilotfish

extern "C" {

int64_t pilotfish_abi() { return pilotfish::ABI; }

void* pilotfish_create(const PilotfishModel* model, const PilotfishLayer* layers, int64_t threads) {
  using namespace pilotfish;
  try {
    if (model->rounds) return new Decoder<bf16>(*model, layers, int(threads));
    return new Decoder<float>(*model, layers, int(threads));
  } catch (const std::exception&) {
    return nullptr;
  }
}

void pilotfish_destroy(void* executor) { delete static_cast<pilotfish::Executor*>(executor); }

int64_t pilotfish_forward(void* executor, const PilotfishStep* step) {
  try {
    return static_cast<pilotfish::Executor*>(executor)->forward(*step);
  } catch (const std::exception&) {
    return pilotfish::NO_MEMORY;
  }
}
}

// Drafts of a model that goes on from its own state, token by token: the likeliest each time. One
// call for a whole block of many sessions, because each step is small.
#pragma once

#include "layer.h"
#include "linear.h"
#include "rows.h"

namespace pilotfish {

template <class T>
class ChainWalk {
 public:
  ChainWalk(Crew& crew, const PilotfishChain& chain, const PilotfishChainStep& step)
      : crew_(crew), c_(chain), s_(step), hidden_(chain.layers[0].hidden) {}

  void run() {
    const long half = c_.layers[0].turned / 2, width = (c_.head->out + PANEL - 1) / PANEL * PANEL;
    for (long i = 0; i < s_.chains; ++i)
      if (s_.depths[i] > 0) live_.push_back(i);
    const size_t rows = live_.size(), size = rows * size_t(hidden_);
    for (auto* buffer : {&state_, &next_, &normed_, &embedded_}) buffer->resize(size);
    logits_.resize(rows * size_t(width));
    cosines_.resize(rows * size_t(half));
    sines_.resize(rows * size_t(half));
    for (size_t r = 0; r < rows; ++r)
      std::memcpy(&state_[r * hidden_], s_.states + live_[r] * hidden_, bytes(hidden_));
    for (long place = 0; !live_.empty(); ++place) {
      choose(place, width);
      retire(place + 1);
      if (!live_.empty()) go_on(place, half);
    }
  }

 private:
  static size_t bytes(long floats) { return size_t(floats) * sizeof(float); }

  // The draft at `place` of each live chain.
  void choose(long place, long width) {
    for (size_t r = 0; r < live_.size(); ++r)
      rms_norm<float>(&state_[r * hidden_], c_.norm, hidden_, c_.epsilon, &normed_[r * hidden_]);
    linear<T>(crew_, *c_.head, long(live_.size()), normed_.data(), hidden_, logits_.data());
    for (size_t r = 0; r < live_.size(); ++r) {
      const float* row = &logits_[r * width];
      long best = 0;
      bool number = row[0] == row[0];
      for (long i = 1; i < c_.choices; ++i) {
        number = number && row[i] == row[i];
        if (row[i] > row[best]) best = i;
      }
      const long at = live_[r] * s_.depth + place;
      s_.drafts[at] = c_.ids ? c_.ids[best] : best;
      s_.tops[at] = number ? row[best] : NAN;
    }
  }

  // Chains that are long enough are done; the rows of the others move together.
  void retire(long drafted) {
    size_t kept = 0;
    for (size_t r = 0; r < live_.size(); ++r) {
      if (s_.depths[live_[r]] <= drafted) continue;
      if (kept != r) {
        std::memcpy(&state_[kept * hidden_], &state_[r * hidden_], bytes(hidden_));
        std::memcpy(&normed_[kept * hidden_], &normed_[r * hidden_], bytes(hidden_));
      }
      live_[kept++] = live_[r];
    }
    live_.resize(kept);
  }

  // The state behind the draft at `place` of each live chain.
  void go_on(long place, long half) {
    const size_t rows = live_.size();
    std::vector<int64_t> starts(rows), stops(rows), offsets(rows), capacities(rows);
    std::vector<float*> keys(rows), values(rows);
    for (size_t r = 0; r < rows; ++r) {
      const long chain = live_[r], at = chain * s_.depth + place;
      embed(s_.drafts[at], &embedded_[r * hidden_]);
      std::memcpy(&cosines_[r * half], s_.cosines + at * half, bytes(half));
      std::memcpy(&sines_[r * half], s_.sines + at * half, bytes(half));
      starts[r] = long(r);
      stops[r] = long(r) + 1;
      offsets[r] = s_.offsets[chain] + place;
    }
    const float* x = c_.recycles_normed ? normed_.data() : state_.data();
    for (long l = 0; l < c_.count; ++l) {
      for (size_t r = 0; r < rows; ++r) {
        const long at = l * s_.chains + live_[r];
        capacities[r] = s_.capacities[at];
        keys[r] = s_.keys[at];
        values[r] = s_.values[at];
      }
      const PilotfishDraftStep step{
          int64_t(rows),     x,                 l ? nullptr : embedded_.data(),
          cosines_.data(),   sines_.data(),     1,
          s_.window,         int64_t(rows),     starts.data(),
          stops.data(),      offsets.data(),    capacities.data(),
          keys.data(),       values.data(),     next_.data()};
      LayerWalk<T>(crew_, c_.layers[l], step).run();
      std::swap(state_, next_);
      x = state_.data();
    }
  }

  // A token that the table does not have is read as token 0.
  void embed(long token, float* out) const {
    const long row = token >= 0 && token < c_.tokens ? token : 0;
    if (!c_.rounded) {
      std::memcpy(out, static_cast<const float*>(c_.embedding) + row * hidden_, bytes(hidden_));
      return;
    }
    const bf16* from = static_cast<const bf16*>(c_.embedding) + row * hidden_;
    for (long i = 0; i < hidden_; i += LANES) store(out + i, load(from + i));
  }

  Crew& crew_;
  const PilotfishChain& c_;
  const PilotfishChainStep& s_;
  const long hidden_;
  std::vector<long> live_;  // chains that go on, in order; row r of all below is live_[r]'s
  Room state_, next_, normed_, embedded_;  // [rows][hidden]
  Room logits_;                            // [rows][head's columns]
  Room cosines_, sines_;                   // [rows][turned / 2]
};

}  // namespace pilotfish

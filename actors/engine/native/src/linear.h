// One linear map on its own, for models that are too small or too odd for an executor.
#pragma once

#include <mutex>

#include "abi.h"
#include "gemm.h"
#include "team.h"

namespace pilotfish {

// Callers take turns.
class Multiplier {
 public:
  explicit Multiplier(int threads) : team_(threads), panels_(size_t(threads)) {}

  template <class T>
  void run(const PilotfishLinear& l, int64_t rows, const float* x, int64_t stride, float* out) {
    const Weights<T> w{static_cast<const T*>(l.packed), l.in, l.bias};
    const long count = (l.out + PANEL - 1) / PANEL, width = count * PANEL;
    std::lock_guard<std::mutex> turn(mutex_);
    for (auto& panel : panels_) panel.resize(std::max(panel.size(), size_t(PANEL * l.in)));
    const auto work = [&](int member) {
      phase_.deal(count, grain(count, rows), [&](long first, long last) {
        multiply(int(rows), x, stride, w, first, last, out, width, panels_[member].data());
        if (w.bias) add_bias(rows, w.bias, first, last, out, width);
      });
    };
    phase_.reset();
    // Waking a helper takes longer than a small map.
    if (team_.size() > 1 && count * PANEL * l.in * rows >= WORTH_A_TEAM) {
      team_.run(work);
    } else {
      work(0);
    }
  }

 private:
  static constexpr long WORTH_A_TEAM = 1 << 20;  // multiply-adds

  long grain(long count, long rows) const {
    const long turns = team_.size() * (rows >= EXPAND_FROM ? 6 : 2);
    return std::max<long>(1, (count + turns - 1) / turns);
  }

  static void add_bias(long rows, const float* bias, long first, long last, float* out,
                       long width) {
    for (long r = 0; r < rows; ++r) {
      for (long i = first * PANEL; i < last * PANEL; i += LANES)
        store(out + r * width + i, load(out + r * width + i) + load(bias + i));
    }
  }

  std::mutex mutex_;
  Team team_;
  Phase phase_;
  std::vector<std::vector<float>> panels_;
};

}  // namespace pilotfish

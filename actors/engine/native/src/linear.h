// One linear map on its own.
#pragma once

#include "abi.h"
#include "crew.h"

namespace pilotfish {

inline void add_bias(long rows, const float* bias, long first, long last, float* out, long width) {
  for (long r = 0; r < rows; ++r) {
    for (long i = first * PANEL; i < last * PANEL; i += LANES)
      store(out + r * width + i, load(out + r * width + i) + load(bias + i));
  }
}

template <class T>
inline void linear(Crew& crew, const PilotfishLinear& l, long rows, const float* x, long stride,
                   float* out) {
  const Weights<T> w{static_cast<const T*>(l.packed), l.in, l.bias};
  const long count = (l.out + PANEL - 1) / PANEL, width = count * PANEL;
  const auto lock = crew.turn();
  crew.fit_panels(l.in);
  crew.run(width * l.in * rows, [&](Phase* phase, Crew::Member& me) {
    phase[0].deal(count, crew.grain(count, rows), [&](long first, long last) {
      multiply(int(rows), x, stride, w, first, last, out, width, me.panel.data());
      if (w.bias) add_bias(rows, w.bias, first, last, out, width);
    });
  });
}

}  // namespace pilotfish

// The border of what small models are put together of: linear maps and single layers.
#include <exception>

#include "abi.h"
#include "chain.h"
#include "crew.h"
#include "layer.h"
#include "linear.h"

namespace {

constexpr int64_t NO_MEMORY = 3;

// 0, or NO_MEMORY where `work` could not get the room it needs.
template <class Work>
int64_t contained(Work work) {
  try {
    work();
  } catch (const std::exception&) {
    return NO_MEMORY;
  }
  return 0;
}

}  // namespace

extern "C" {

void* pilotfish_crew(int64_t threads) {
  try {
    return new pilotfish::Crew(int(threads));
  } catch (const std::exception&) {
    return nullptr;
  }
}

void pilotfish_crew_end(void* crew) { delete static_cast<pilotfish::Crew*>(crew); }

int64_t pilotfish_linear(void* crew, const PilotfishLinear* linear, int64_t rows, const float* x,
                         int64_t stride, float* out) {
  auto& on = *static_cast<pilotfish::Crew*>(crew);
  return contained([&] {
    if (linear->rounds) {
      pilotfish::linear<pilotfish::bf16>(on, *linear, rows, x, stride, out);
    } else {
      pilotfish::linear<float>(on, *linear, rows, x, stride, out);
    }
  });
}

int64_t pilotfish_layer(void* crew, const PilotfishDraftLayer* layer,
                        const PilotfishDraftStep* step) {
  auto& on = *static_cast<pilotfish::Crew*>(crew);
  return contained([&] {
    if (layer->rounds) {
      pilotfish::LayerWalk<pilotfish::bf16>(on, *layer, *step).run();
    } else {
      pilotfish::LayerWalk<float>(on, *layer, *step).run();
    }
  });
}

int64_t pilotfish_chain(void* crew, const PilotfishChain* chain, const PilotfishChainStep* step) {
  auto& on = *static_cast<pilotfish::Crew*>(crew);
  return contained([&] {
    if (chain->head->rounds) {
      pilotfish::ChainWalk<pilotfish::bf16>(on, *chain, *step).run();
    } else {
      pilotfish::ChainWalk<float>(on, *chain, *step).run();
    }
  });
}

void pilotfish_norm(int64_t rows, int64_t size, const float* x, const float* weight, float epsilon,
                    float* out) {
  for (int64_t r = 0; r < rows; ++r)
    pilotfish::rms_norm<float>(x + r * size, weight, size, epsilon, out + r * size);
}
}

// Threads that compute what is too small or too odd for an executor: callers take turns.
#pragma once

#include <mutex>

#include "attention.h"
#include "gemm.h"
#include "team.h"

namespace pilotfish {

class Crew {
 public:
  // One member's own room.
  struct Member {
    Room panel;
    AttentionScratch attention;
  };

  explicit Crew(int threads) : team_(threads), members_(size_t(threads)) {}

  // Hold it from before a call's room is made until its walk is over.
  std::unique_lock<std::mutex> turn() { return std::unique_lock<std::mutex>(mutex_); }

  void fit_panels(long inner) {
    for (auto& member : members_)
      member.panel.resize(std::max(member.panel.size(), size_t(PANEL * inner)));
  }

  std::vector<Member>& members() { return members_; }

  // Room for a call's intermediate rows, kept from call to call; `index` of a few. May throw.
  float* room(int index, size_t size) {
    auto& kept = rooms_[index];
    if (kept.size() < size) kept.resize(size);
    return kept.data();
  }

  // walk(phases, member) on the caller, and on the helpers where `products` multiply-adds are worth
  // it: waking one takes longer than a small map.
  template <class Walk>
  void run(long products, Walk walk) {
    for (auto& phase : phases_) phase.reset();
    const auto work = [&](int member) { walk(phases_, members_[member]); };
    if (team_.size() > 1 && products >= WORTH_A_TEAM) {
      team_.run(work);
    } else {
      work(0);
    }
  }

  // Units taken at a time: two turns a member, more when there is much to balance.
  long grain(long count, long rows) const {
    const long turns = team_.size() * (rows >= EXPAND_FROM ? 6 : 2);
    return std::max<long>(1, (count + turns - 1) / turns);
  }

  // Work on rows one by one.
  template <class Work>
  void each(Phase& phase, long rows, Work work) {
    phase.deal(rows, std::max<long>(1, rows / (4 * team_.size())), [&](long first, long last) {
      for (long r = first; r < last; ++r) work(r);
    });
  }

 private:
  static constexpr long WORTH_A_TEAM = 1 << 20;
  static constexpr long PHASES = 8;
  static constexpr int ROOMS = 4;

  std::mutex mutex_;
  Team team_;
  std::vector<Member> members_;
  Room rooms_[ROOMS];
  Phase phases_[PHASES];
};

}  // namespace pilotfish

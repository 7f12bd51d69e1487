// A team of threads that walks through a forward together: the caller and size-1 helpers.
//
// The walk is a row of phases; a phase is over when its units are done, whoever did them. Nobody
// waits for a member that holds no unit: where the machine has fewer cores than threads that want
// them, one that comes late finds the work done and catches up.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace pilotfish {

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Spins a little, then gives the core away.
template <class Condition>
inline void await(Condition met) {
  constexpr int SPINS = 4000;
  for (int spins = 0; !met(); ++spins) {
    if (spins < SPINS) {
      relax();
    } else {
      std::this_thread::yield();
    }
  }
}

// Units 0 … units-1, dealt out `grain` at a time; over when all are done.
class Phase {
 public:
  void reset() {
    ticket_.store(0, std::memory_order_relaxed);
    done_.store(0, std::memory_order_relaxed);
  }

  template <class Work>
  void deal(long units, long grain, Work work) {
    while (true) {
      const long from = ticket_.fetch_add(grain, std::memory_order_relaxed);
      if (from >= units) break;
      const long to = std::min(from + grain, units);
      work(from, to);
      done_.fetch_add(to - from, std::memory_order_release);
    }
    await([&] { return done_.load(std::memory_order_acquire) >= units; });
  }

 private:
  std::atomic<long> ticket_{0};
  std::atomic<long> done_{0};
};

class Team {
 public:
  // Throws std::system_error where the machine gives no more threads; none is left behind.
  explicit Team(int size) : size_(size) {
    try {
      for (int i = 1; i < size; ++i) threads_.emplace_back([this, i] { serve(i); });
    } catch (...) {
      end();
      throw;
    }
  }

  ~Team() { end(); }

  int size() const { return size_; }

  // Runs work(member) on the caller and on every helper that comes in time; returns when the
  // caller and those have returned. A helper that wakes later finds nothing to do.
  void run(const std::function<void(int)>& work) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      work_ = &work;
      ++generation_;
    }
    wake_.notify_all();
    work(0);
    {
      std::lock_guard<std::mutex> lock(mutex_);
      work_ = nullptr;
    }
    await([this] { return active_.load(std::memory_order_acquire) == 0; });
  }

 private:
  void serve(int member) {
    unsigned seen = 0;
    while (true) {
      const std::function<void(int)>* work;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        wake_.wait(lock, [&] { return generation_ != seen; });
        seen = generation_;
        if (ending_) return;
        work = work_;
        if (work) active_.fetch_add(1, std::memory_order_relaxed);
      }
      if (!work) continue;
      (*work)(member);
      active_.fetch_sub(1, std::memory_order_release);
    }
  }

  void end() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      ending_ = true;
      ++generation_;
    }
    wake_.notify_all();
    for (auto& thread : threads_) thread.join();
    threads_.clear();
  }

  const int size_;
  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable wake_;
  const std::function<void(int)>* work_ = nullptr;
  unsigned generation_ = 0;
  bool ending_ = false;
  std::atomic<int> active_{0};
};

}  // namespace pilotfish

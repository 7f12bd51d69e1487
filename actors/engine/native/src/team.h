// A team of threads that walks through a forward together: the caller and size-1 helpers.
#pragma once

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

class Team {
 public:
  explicit Team(int size) : size_(size) {
    for (int i = 1; i < size; ++i) threads_.emplace_back([this, i] { serve(i); });
  }

  ~Team() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      ending_ = true;
      ++generation_;
    }
    wake_.notify_all();
    for (auto& thread : threads_) thread.join();
  }

  int size() const { return size_; }

  // Runs work(member) on every member and returns when all have returned.
  void run(const std::function<void(int)>& work) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      work_ = &work;
      ++generation_;
    }
    wake_.notify_all();
    work(0);
    barrier();
  }

  // Nobody passes before all have come. Spins a little, then gives the core away: the machine may
  // have fewer cores than threads that want them.
  void barrier() {
    const unsigned phase = phase_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
      arrived_.store(0, std::memory_order_relaxed);
      phase_.store(phase + 1, std::memory_order_release);
      return;
    }
    for (int spins = 0; phase_.load(std::memory_order_acquire) == phase; ++spins) {
      if (spins < SPINS) {
        relax();
      } else {
        std::this_thread::yield();
      }
    }
  }

 private:
  static constexpr int SPINS = 4000;

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
      }
      (*work)(member);
      barrier();
    }
  }

  const int size_;
  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable wake_;
  const std::function<void(int)>* work_ = nullptr;
  unsigned generation_ = 0;
  bool ending_ = false;
  std::atomic<int> arrived_{0};
  std::atomic<unsigned> phase_{0};
};

}  // namespace pilotfish

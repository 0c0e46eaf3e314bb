// The machine that kuiper_bench runs on, from /proc and /sys, and what it draws: text for people
// who read the figures, and joules where the board measures its power. Nothing of it is needed to
// measure; what a system does not tell is left out.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/report.h"

namespace kuiper::tools {

// Processor, clocks, governor, memory, huge pages, kernel, compiler, load; on a Jetson its board,
// power mode and temperature. `root` stands before /proc, /sys and the like: "" but in tests.
Json DescribeHost(const std::string& root);

// What other programs took of the CPUs, as a part of 1, since this was made.
class OtherLoad {
 public:
  explicit OtherLoad(std::string root);
  // Absent where /proc does not tell.
  std::optional<double> share() const;

 private:
  struct Times {
    double busy = 0, all = 0, own = 0;  // seconds
  };
  std::optional<Times> Read() const;

  std::string root_;
  std::optional<Times> begin_;
};

// Adds up the power of a board's INA3221 rails in a thread of its own.
class PowerMeter {
 public:
  // Null: the board has no such rails.
  static std::unique_ptr<PowerMeter> Make(const std::string& root);
  ~PowerMeter();
  PowerMeter(const PowerMeter&) = delete;
  PowerMeter& operator=(const PowerMeter&) = delete;

  // Joules since it was made.
  double Joules();
  const std::string& rails() const { return names_; }

 private:
  // A voltage in mV and a current in mA.
  using Rail = std::pair<std::string, std::string>;

  PowerMeter(std::vector<Rail> rails, std::string names);
  double Watts() const;
  void AddUp();  // under the lock

  std::vector<Rail> rails_;
  std::string names_;
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stop_ = false;
  double joules_ = 0, watts_ = 0;
  double last_ = 0;  // seconds of a steady clock
  std::thread thread_;
};

}  // namespace kuiper::tools

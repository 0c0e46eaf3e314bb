// Describes the machine that kuiper_bench runs on and its power: text for the readers of the
// figures, from /proc and /sys, and joules if the board measures its power. The measurements do not
// depend on it; what a system does not report is left out.
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

// Returns processor, clocks, governor, memory, huge pages, kernel, compiler and load; on a Jetson
// also board, power mode and temperature. `root` is the prefix of /proc, /sys and the like; it is
// "" except in tests.
Json DescribeHost(const std::string& root);

// Measures the share of the CPUs, from 0 to 1, that other programs used since the object was made.
class OtherLoad {
 public:
  explicit OtherLoad(std::string root);
  // Absent if /proc does not report it.
  std::optional<double> share() const;

 private:
  struct Times {
    double busy = 0, all = 0, own = 0;  // seconds
  };
  std::optional<Times> Read() const;

  std::string root_;
  std::optional<Times> begin_;
};

// Adds up the power of a board's INA3221 rails in its own thread.
class PowerMeter {
 public:
  // Returns null if the board has no such rails.
  static std::unique_ptr<PowerMeter> Make(const std::string& root);
  ~PowerMeter();
  PowerMeter(const PowerMeter&) = delete;
  PowerMeter& operator=(const PowerMeter&) = delete;

  // Returns the joules since the object was made.
  double Joules();
  const std::string& rails() const { return names_; }

 private:
  // File paths of a voltage in mV and a current in mA.
  using Rail = std::pair<std::string, std::string>;

  PowerMeter(std::vector<Rail> rails, std::string names);
  double Watts() const;
  void AddUp();  // call with the lock held

  std::vector<Rail> rails_;
  std::string names_;
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stop_ = false;
  double joules_ = 0, watts_ = 0;
  double last_ = 0;  // time of a steady clock in seconds
  std::thread thread_;
};

}  // namespace kuiper::tools

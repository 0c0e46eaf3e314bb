// Runs a test body under every schedule of the emulated device.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>

#include "emulator/machine.h"

namespace kuiper::simt_test {

template <typename Body>
void ForEachSchedule(Body body) {
  simt::Options& options = simt::CurrentOptions();
  const simt::Options saved = options;
  using simt::Schedule;
  for (const auto& [schedule, name] :
       {std::pair{Schedule::kInOrder, "in order"}, std::pair{Schedule::kReversed, "reversed"},
        std::pair{Schedule::kShuffled, "shuffled"}}) {
    SCOPED_TRACE(name);
    options.schedule = schedule;
    body();
  }
  options = saved;
}

}  // namespace kuiper::simt_test

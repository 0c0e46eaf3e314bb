// Where a tensor lives.
#pragma once

#include <cstdint>
#include <string>

namespace kuiper {

enum class DeviceType : uint8_t { kCPU, kCUDA, kSimt };

struct Device {
  DeviceType type = DeviceType::kCPU;
  int index = 0;
  bool operator==(const Device&) const = default;
};

// "cpu", "cuda:0", "simt".
inline std::string DeviceName(Device device) {
  switch (device.type) {
    case DeviceType::kCPU:
      return "cpu";
    case DeviceType::kCUDA:
      return "cuda:" + std::to_string(device.index);
    case DeviceType::kSimt:
      return "simt";
  }
  return "";
}

}  // namespace kuiper

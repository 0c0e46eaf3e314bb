// Helpers of the op tests: the devices under test, matrices on a device with NaN-filled row
// padding, and comparisons that report the worst element. The tests contain the references, naive
// loops.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kuiper/base/float8.h"
#include "kuiper/base/half.h"
#include "kuiper/ops/ops.h"

namespace kuiper::test {

// The CPU, the emulated device if it is built, and the first GPU if there is one.
inline std::vector<Device> DevicesUnderTest() {
  std::vector<Device> devices = {Device{}};
  for (DeviceType type : {DeviceType::kSimt, DeviceType::kCUDA}) {
    if (MakeOps({type, 0}, {}).ok()) devices.push_back({type, 0});
  }
  return devices;
}
inline std::vector<DType> FloatTypes() {
  return {DType::kF32, DType::kF16, DType::kBF16};
}

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

inline OpsLimits TestLimits() {
  OpsLimits limits;
  limits.max_tokens = 512;
  limits.max_seqs = 64;
  limits.max_features = 4096;
  limits.max_context = 4096;
  limits.vocab = 200000;
  return limits;
}

inline std::unique_ptr<Ops> MakeTestOps(Device device, OpsOptions options = {}) {
  if (options.num_threads == 0) options.num_threads = 2;
  auto ops = MakeOps(device, options);
  KU_CHECK(ops.ok(), ops.status().message());
  std::unique_ptr<Ops> result = std::move(ops).value();
  const Status reserved = result->Reserve(TestLimits());
  KU_CHECK(reserved.ok(), reserved.message());
  return result;
}

// Returns x rounded to this type.
inline float Rounded(float x, DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return ToFloat(ToHalf(x));
    case DType::kBF16:
      return ToFloat(ToBFloat16(x));
    case DType::kF8E4M3:
      return ToFloat(ToFloat8E4M3(x));
    case DType::kF8E5M2:
      return ToFloat(ToFloat8E5M2(x));
    default:
      return x;
  }
}
inline std::vector<float> Rounded(std::vector<float> values, DType dtype) {
  for (float& x : values) x = Rounded(x, dtype);
  return values;
}
// Returns the relative error of rounding once to this type. It has a margin for results that
// another order of summation moves to the other side of a tie.
inline double RoundingError(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return 1.01 * 0x1p-11;
    case DType::kBF16:
      return 1.01 * 0x1p-8;
    default:
      return 0;
  }
}

inline std::vector<float> RandomFloats(size_t n, uint32_t seed, float scale = 1.0f) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(n);
  for (float& x : values) x = normal(engine);
  return values;
}

// The device of a test, convertible from everything that has one.
struct DeviceRef {
  DeviceRef(Ops& ops) : device(ops.device()) {}  // NOLINT(google-explicit-constructor)
  DeviceRef(ComputeDevice& the_device)
      : device(the_device) {}  // NOLINT(google-explicit-constructor)
  ComputeDevice& device;
};

// A float matrix [rows, cols] on the device whose rows are `stride` elements apart; the padding
// between them holds NaN and must survive.
class Matrix {
 public:
  Matrix(DeviceRef ref, DType dtype, int rows, int cols, int stride = 0)
      : device_(ref.device), rows_(rows), cols_(cols), stride_(stride == 0 ? cols : stride) {
    auto buffer = device_.Allocate(size_t{1} * rows * stride_ * DTypeBytes(dtype));
    KU_CHECK(buffer.ok(), buffer.status().message());
    buffer_ = std::move(buffer).value();
    full_ = Tensor::Dense(buffer_.data(), dtype, {rows, stride_}, device_.id());
    // All bits set is NaN in every float type.
    Upload(std::vector<char>(size_t{1} * rows * stride_ * DTypeBytes(dtype), '\xFF'));
  }
  Matrix(DeviceRef ref, DType dtype, int rows, int cols, const std::vector<float>& values,
         int stride = 0)
      : Matrix(ref, dtype, rows, cols, stride) {
    Set(values);
  }

  Tensor tensor() const { return full_.Cols(0, cols_); }
  Tensor vector() const {  // for a matrix with one row
    Tensor t = Tensor::Dense(buffer_.data(), full_.dtype, {cols_}, full_.device);
    return t;
  }

  void Set(const std::vector<float>& values) {
    KU_CHECK(values.size() == size_t{1} * rows_ * cols_);
    std::vector<float> padded(size_t{1} * rows_ * stride_, kNaN);
    for (int r = 0; r < rows_; ++r) {
      std::copy_n(values.begin() + r * cols_, cols_, padded.begin() + r * stride_);
    }
    std::vector<char> raw(padded.size() * DTypeBytes(full_.dtype));
    for (size_t i = 0; i < padded.size(); ++i) {
      char* p = raw.data() + i * DTypeBytes(full_.dtype);
      if (full_.dtype == DType::kF32) {
        std::memcpy(p, &padded[i], 4);
      } else {
        const uint16_t bits =
            full_.dtype == DType::kF16 ? ToHalf(padded[i]).bits : ToBFloat16(padded[i]).bits;
        std::memcpy(p, &bits, 2);
      }
    }
    Upload(std::move(raw));
  }

  // Returns all its bytes, as stored.
  std::vector<char> Bytes() const {
    std::vector<char> raw(size_t{1} * rows_ * stride_ * DTypeBytes(full_.dtype));
    Tensor host = full_;
    host.data = raw.data();
    host.device = {};
    device_.Download(host, full_);
    device_.Sync();
    return raw;
  }
  void SetBytes(const std::vector<char>& raw) { Upload(raw); }

  // Returns [rows * cols]; fails the test if the padding was written.
  std::vector<float> Get() const {
    const std::vector<char> raw = Bytes();
    std::vector<float> values;
    for (int r = 0; r < rows_; ++r) {
      for (int c = 0; c < stride_; ++c) {
        const float x = At(raw, size_t{1} * r * stride_ + c);
        if (c < cols_) {
          values.push_back(x);
        } else {
          EXPECT_TRUE(std::isnan(x)) << "padding of row " << r << " was overwritten";
        }
      }
    }
    return values;
  }

 private:
  void Upload(std::vector<char> raw) {
    Tensor host = full_;
    host.data = raw.data();
    host.device = {};
    device_.Upload(full_, host);
    device_.Sync();
  }
  float At(const std::vector<char>& raw, size_t i) const {
    const char* p = raw.data() + i * DTypeBytes(full_.dtype);
    float x;
    uint16_t bits;
    if (full_.dtype == DType::kF32) {
      std::memcpy(&x, p, 4);
      return x;
    }
    std::memcpy(&bits, p, 2);
    return full_.dtype == DType::kF16 ? ToFloat(Half{bits}) : ToFloat(BFloat16{bits});
  }

  ComputeDevice& device_;
  int rows_, cols_, stride_;
  Buffer buffer_;
  Tensor full_;
};

// A dense array of integers (or plain floats) on the device.
template <typename T>
class Array {
 public:
  Array(DeviceRef ref, const std::vector<T>& values) : Array(ref, values, 1) {}
  // As [rows, values.size() / rows].
  Array(DeviceRef ref, const std::vector<T>& values, int rows) : device_(ref.device), rows_(rows) {
    auto buffer = device_.Allocate(std::max<size_t>(1, values.size()) * sizeof(T));
    KU_CHECK(buffer.ok(), buffer.status().message());
    buffer_ = std::move(buffer).value();
    size_ = static_cast<int>(values.size());
    Set(values);
  }
  void Set(const std::vector<T>& values) const {
    KU_CHECK(static_cast<int>(values.size()) == size_);
    Tensor host = tensor();
    host.data = const_cast<T*>(values.data());
    host.device = {};
    device_.Upload(tensor(), host);
    device_.Sync();
  }
  Tensor tensor() const {
    return Tensor::Dense(buffer_.data(), DTypeOf<T>::value, {size_}, device_.id());
  }
  Tensor matrix() const {
    return Tensor::Dense(buffer_.data(), DTypeOf<T>::value, {rows_, size_ / rows_}, device_.id());
  }
  std::vector<T> Get() const {
    std::vector<T> values(size_);
    Tensor host = tensor();
    host.data = values.data();
    host.device = {};
    device_.Download(host, tensor());
    device_.Sync();
    return values;
  }

 private:
  ComputeDevice& device_;
  int rows_, size_ = 0;
  Buffer buffer_;
};

// |actual - expected| <= abs + rel * |expected| for every element.
inline void ExpectNear(const std::vector<float>& actual, const std::vector<double>& expected,
                       double abs, double rel, const std::string& what = "") {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  size_t worst = 0;
  double worst_excess = -1;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double error = std::abs(actual[i] - expected[i]);
    const double excess = error / (abs + rel * std::abs(expected[i]));
    if (!(excess <= worst_excess)) {  // NaN counts as worst
      worst = i;
      worst_excess = excess;
      if (std::isnan(excess)) break;
    }
  }
  if (actual.empty()) return;
  EXPECT_LE(worst_excess, 1.0) << what << ": element " << worst << " is " << actual[worst]
                               << ", expected " << expected[worst];
}

inline bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

inline std::string DeviceTestName(const ::testing::TestParamInfo<Device>& info) {
  std::string name = DeviceName(info.param);
  for (char& c : name) {
    if (c == ':') c = '_';
  }
  return name;
}
inline std::string DeviceTypeTestName(
    const ::testing::TestParamInfo<std::tuple<Device, DType>>& info) {
  std::string name = DeviceName(std::get<0>(info.param));
  for (char& c : name) {
    if (c == ':') c = '_';
  }
  name += std::string("_") + DTypeName(std::get<1>(info.param));
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

using OpsTest = ::testing::TestWithParam<Device>;
class TypedOpsTest : public ::testing::TestWithParam<std::tuple<Device, DType>> {
 protected:
  Device device() const { return std::get<0>(GetParam()); }
  DType dtype() const { return std::get<1>(GetParam()); }
};

}  // namespace kuiper::test

#define KU_INSTANTIATE_OPS_TEST(suite)                                                       \
  INSTANTIATE_TEST_SUITE_P(, suite, ::testing::ValuesIn(::kuiper::test::DevicesUnderTest()), \
                           ::kuiper::test::DeviceTestName)
#define KU_INSTANTIATE_TYPED_OPS_TEST(suite)                                      \
  INSTANTIATE_TEST_SUITE_P(                                                       \
      , suite,                                                                    \
      ::testing::Combine(::testing::ValuesIn(::kuiper::test::DevicesUnderTest()), \
                         ::testing::ValuesIn(::kuiper::test::FloatTypes())),      \
      ::kuiper::test::DeviceTypeTestName)

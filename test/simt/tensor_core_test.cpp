// Compares the emulated ldmatrix and mma with a GPU's, on the same inputs in one test. NVIDIA does
// not specify how mma adds. Fasi et al. 2021 ("Numerical behavior of NVIDIA tensor cores", PeerJ CS
// 7:e330) and Khattak and Mikaitis 2025 ("Accurate models of NVIDIA tensor cores", arXiv
// 2512.07004) found it by experiment. Products are exact, subnormal ones included. k is processed
// in blocks: a block's products and the sum so far are aligned to the largest of them, truncated
// near FP32's last bit and added exactly. The sum is truncated to FP32 towards zero. The emulated
// device adds in FP32 along ascending k.
//
// So both must agree to the bit if sums are exact in any order, and within kBound otherwise. Models
// of that arithmetic are compared on every machine; the GPU is compared if there is one.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "kuiper/base/half.h"
#include "test/simt/wrapper_array.h"

namespace kuiper::simt_test {
namespace {

// d [16, 8] = a [16, 16] * b + c, b stored as [8, 16].
template <typename T>
struct Product {
  std::vector<T> a = std::vector<T>(256), b = std::vector<T>(128);
  std::vector<float> c = std::vector<float>(128);

  const T* row(size_t i) const { return &a[i / 8 * 16]; }
  const T* column(size_t i) const { return &b[i % 8 * 16]; }
};

template <typename T>
std::vector<float> MultiplyOn(const Wrappers& w, const Product<T>& p) {
  const Array<T> a(w, p.a), b(w, p.b);
  Array<float> d(w, p.c);
  if constexpr (std::is_same_v<T, Half>) {
    w.multiply_half(d.device(), a.device(), b.device(), false);
  } else {
    w.multiply_bfloat16(d.device(), a.device(), b.device(), false);
  }
  return d.host();
}

struct Arithmetic {
  const char* name;
  int block;       // elements of k per block
  int extra_bits;  // bits kept below the last FP32 bit of the largest term
};
constexpr Arithmetic kAmpere{"Ampere", 8, 1}, kHopper{"Hopper", 16, 2};
constexpr Arithmetic kGpu{"cuda", 0, 0};  // the hardware itself

float CutToFloat(double x) {
  const float nearest = static_cast<float>(x);
  return std::fabs(nearest) > std::fabs(x) ? std::nextafter(nearest, 0.0f) : nearest;
}

template <typename T>
float Dot(const Arithmetic& model, const T* a, const T* b, float c) {
  float sum = c;
  for (int k = 0; k < 16; k += model.block) {
    std::vector<double> terms = {sum};
    for (int i = k; i < k + model.block; ++i) {
      terms.push_back(static_cast<double>(ToFloat(a[i])) * ToFloat(b[i]));  // exact
    }
    double largest = 0, special = 0;
    for (const double x : terms) {
      if (std::isfinite(x)) largest = std::fmax(largest, std::fabs(x));
      if (!std::isfinite(x)) special += x;
    }
    int exponent = 0;  // largest < 2^exponent
    std::frexp(largest, &exponent);
    const double unit = std::ldexp(1, exponent - 24 - model.extra_bits);
    double total = special;
    for (const double x : terms) {
      if (special == 0 && x != 0) total += std::trunc(x / unit) * unit;
    }
    sum = CutToFloat(total);
  }
  return sum;
}

template <typename T>
std::vector<float> MultiplyOn(const Arithmetic& model, const Product<T>& p) {
  std::vector<float> d(128);
  for (size_t i = 0; i < d.size(); ++i) d[i] = Dot(model, p.row(i), p.column(i), p.c[i]);
  return d;
}

class TensorCoreTest : public testing::TestWithParam<Arithmetic> {
 protected:
  void SetUp() override {
    if (GetParam().block > 0) return;
    gpu_ = GpuWrappers();
    if (!gpu_.has_value()) GTEST_SKIP() << "no GPU";
  }

  template <typename T>
  void ExpectEqual(const Product<T>& p, const char* what) {
    const std::vector<float> ours = MultiplyOn(emulated_, p), theirs = Other(p);
    for (size_t i = 0; i < ours.size(); ++i) {
      ASSERT_TRUE(ours[i] == theirs[i] || (std::isnan(ours[i]) && std::isnan(theirs[i])))
          << what << ", element " << i << ": " << ours[i] << " emulated, " << theirs[i];
    }
  }

  // The bound is in units of 2^-23 (|c| + sum |a b|). Truncation costs at most 2 * (9 + 1) units
  // with blocks of 8 and at most 18 with a block of 16. Rounding to nearest 16 times costs at most
  // 8.
  static constexpr double kBound = 28;

  template <typename T>
  void ExpectClose(const Product<T>& p, const char* what) {
    const std::vector<float> ours = MultiplyOn(emulated_, p), theirs = Other(p);
    for (size_t i = 0; i < ours.size(); ++i) {
      double magnitude = std::fabs(p.c[i]);
      for (int k = 0; k < 16; ++k) {
        magnitude += std::fabs(static_cast<double>(ToFloat(p.row(i)[k])) * ToFloat(p.column(i)[k]));
      }
      ASSERT_LE(std::fabs(static_cast<double>(ours[i]) - theirs[i]), kBound * 0x1p-23 * magnitude)
          << what << ", element " << i << ": " << ours[i] << " emulated, " << theirs[i];
    }
  }

  const Wrappers emulated_ = simt_gpu::GetWrappers();
  std::optional<Wrappers> gpu_;
  std::mt19937 rng_{17};

 private:
  template <typename T>
  std::vector<float> Other(const Product<T>& p) {
    return gpu_.has_value() ? MultiplyOn(*gpu_, p) : MultiplyOn(GetParam(), p);
  }
};

// Calls body(T()) for both types of mma.
template <typename Body>
void ForBothTypes(const Body& body) {
  body(Half{});
  body(BFloat16{});
}

// The smallest positive value.
double Tiniest(Half) {
  return 0x1p-24;
}
double Tiniest(BFloat16) {
  return 0x1p-133;
}

// Multiples of one power of two: no sum needs more bits than FP32 provides.
TEST_P(TensorCoreTest, AgreesToTheBitOnIntegersAndSubnormals) {
  std::uniform_int_distribution<int> small(-9, 9), subnormal(-127, 127);
  ForBothTypes([&]<typename T>(T type) {
    for (int round = 0; round < 20; ++round) {
      Product<T> integers, tiny;
      for (T& x : integers.a) x = FromFloat<T>(static_cast<float>(small(rng_)));
      for (T& x : integers.b) x = FromFloat<T>(static_cast<float>(small(rng_)));
      for (float& x : integers.c) x = static_cast<float>(1000 * small(rng_));
      tiny.b = integers.b;
      for (T& x : tiny.a) x = FromFloat<T>(static_cast<float>(subnormal(rng_) * Tiniest(type)));
      for (float& x : tiny.c) x = static_cast<float>(subnormal(rng_) * Tiniest(type));
      ExpectEqual(integers, "integers");
      ExpectEqual(tiny, "subnormals");
    }
  });
}

// One nonzero product in each sum, of any size that FP32 can represent: nothing is added.
TEST_P(TensorCoreTest, AgreesToTheBitOnSingleProductsOfAnySize) {
  std::uniform_real_distribution<float> mantissa(1, 2);
  std::uniform_int_distribution<int> position(0, 15), sign(0, 1);
  ForBothTypes([&]<typename T>(T) {
    const int most = std::is_same_v<T, Half> ? 14 : 62;
    std::uniform_int_distribution<int> exponent(-most, most);
    const auto draw = [&] {
      return FromFloat<T>(
          std::ldexp(sign(rng_) ? mantissa(rng_) : -mantissa(rng_), exponent(rng_)));
    };
    for (int round = 0; round < 20; ++round) {
      Product<T> p;
      for (size_t m = 0; m < 16; ++m) p.a[m * 16 + position(rng_)] = draw();
      for (T& x : p.b) x = draw();
      ExpectEqual(p, "single products");
    }
  });
}

TEST_P(TensorCoreTest, AgreesOnInfinitiesAndNan) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  std::uniform_int_distribution<int> one_of(0, 5), position(0, 15);
  const float specials[6] = {kInf, -kInf, kNan, 0, 1, -1};
  ForBothTypes([&]<typename T>(T) {
    for (int round = 0; round < 40; ++round) {
      Product<T> p;
      for (T& x : p.a) x = FromFloat<T>(1);
      for (T& x : p.b) x = FromFloat<T>(1);
      for (size_t m = 0; m < 16; ++m) {
        p.a[m * 16 + position(rng_)] = FromFloat<T>(specials[one_of(rng_)]);
      }
      for (size_t n = 0; n < 8; ++n) {
        p.b[n * 16 + position(rng_)] = FromFloat<T>(specials[one_of(rng_)]);
      }
      p.c[static_cast<size_t>(position(rng_))] = specials[one_of(rng_)];
      ExpectEqual(p, "infinities and NaN");
    }
  });
}

// Values of about one size, values of every size at once, and sums that cancel.
TEST_P(TensorCoreTest, AgreesWithinTheBoundElsewhere) {
  std::normal_distribution<float> normal(0, 1);
  ForBothTypes([&]<typename T>(T) {
    for (const int spread : {0, 4, std::is_same_v<T, Half> ? 12 : 30}) {
      std::uniform_int_distribution<int> exponent(-spread, spread / 2);
      const auto draw = [&] { return std::ldexp(normal(rng_), exponent(rng_)); };
      for (int round = 0; round < 20; ++round) {
        Product<T> p;
        for (T& x : p.a) x = FromFloat<T>(draw());
        for (T& x : p.b) x = FromFloat<T>(draw());
        for (float& x : p.c) x = draw();
        ExpectClose(p, "random values");
        const std::vector<float> d = MultiplyOn(emulated_, p);
        for (size_t i = 0; i < d.size(); ++i) p.c[i] -= d[i];
        ExpectClose(p, "sums that cancel");
      }
    }
  });
}

TEST(TensorCoreGpuTest, LoadMatrixMovesTheSameBits) {
  const std::optional<Wrappers> gpu = GpuWrappers();
  if (!gpu.has_value()) GTEST_SKIP() << "no GPU";
  std::mt19937 rng(5);
  std::vector<uint16_t> in(2 * 256);
  for (uint16_t& x : in) x = static_cast<uint16_t>(rng());
  for (const bool transposed : {false, true}) {
    const auto load = [&](const Wrappers& w) {
      const Array<uint16_t> input(w, in);
      Array<uint32_t> output(w, std::vector<uint32_t>(2 * 4 * 32));
      w.load_matrices(output.device(), input.device(), transposed);
      return output.host();
    };
    EXPECT_EQ(load(simt_gpu::GetWrappers()), load(*gpu));
  }
}

std::string Name(const testing::TestParamInfo<Arithmetic>& info) {
  return info.param.name;
}
INSTANTIATE_TEST_SUITE_P(Models, TensorCoreTest, testing::Values(kAmpere, kHopper), Name);
INSTANTIATE_TEST_SUITE_P(Hardware, TensorCoreTest, testing::Values(kGpu), Name);

}  // namespace
}  // namespace kuiper::simt_test

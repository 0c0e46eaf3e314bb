#include "kuiper/io/image/resize.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace kuiper {
namespace {

// Returns value / factor, rounded half to even as in Python, times factor.
int64_t NearestMultiple(int64_t value, int64_t factor) {
  const int64_t below = value / factor, rest = value % factor;
  const bool up = 2 * rest > factor || (2 * rest == factor && below % 2 == 1);
  return (below + (up ? 1 : 0)) * factor;
}

Status CheckRatio(PictureSize size, const std::string& name) {
  const int64_t longer = std::max(size.height, size.width);
  const int64_t shorter = std::min(size.height, size.width);
  if (longer <= kMaxAspectRatio * shorter) return OkStatus();
  return Status(StatusCode::kInput,
                name + ": aspect ratio " + std::to_string(longer / shorter) + ":1 exceeds " +
                    std::to_string(kMaxAspectRatio) + ":1",
                "cut it into pieces");
}

// `pixels` is the size rounded to multiples of `factor`, times `frames`. The ratio uses the size
// before rounding, in double precision and in this order; otherwise a result may differ by a patch.
PictureSize WithinBudget(PictureSize size, double frames, int64_t pixels, int64_t factor,
                         PixelBudget budget) {
  const double height = static_cast<double>(size.height), width = static_cast<double>(size.width);
  const double step = static_cast<double>(factor);
  if (pixels > budget.max) {
    const double beta = std::sqrt(frames * height * width / static_cast<double>(budget.max));
    const auto shrink = [&](double side) {
      return std::max(factor, static_cast<int64_t>(std::floor(side / beta / step)) * factor);
    };
    return {shrink(height), shrink(width)};
  }
  if (pixels < budget.min) {
    const double beta = std::sqrt(static_cast<double>(budget.min) / (frames * height * width));
    const auto grow = [&](double side) {
      return static_cast<int64_t>(std::ceil(side * beta / step)) * factor;
    };
    return {grow(height), grow(width)};
  }
  return {NearestMultiple(size.height, factor), NearestMultiple(size.width, factor)};
}

// The weighted sum for each output pixel of a row or column: fixed-point weights for the input
// pixels that begin at `first`.
struct Filter {
  struct Tap {
    int first = 0, count = 0;
    size_t weights_at = 0;
  };
  std::vector<Tap> taps;
  std::vector<int32_t> weights;

  std::span<const int32_t> Weights(const Tap& tap) const {
    return std::span(weights).subspan(tap.weights_at, static_cast<size_t>(tap.count));
  }
};

// The pixel takes 8 bits. Sums of weights lie between -1 and 2, which takes two more.
constexpr int kWeightBits = 32 - 8 - 2;

double Bicubic(double x) {
  constexpr double kA = -0.5;
  x = std::abs(x);
  if (x < 1) return ((kA + 2) * x - (kA + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * kA;
  return 0;
}

// As Pillow's precompute_coeffs and normalize_coeffs_8bpc: the same doubles in the same order.
Filter MakeFilter(int from, int to) {
  const double scale = static_cast<double>(from) / to;
  const double filter_scale = std::max(scale, 1.0);
  const double support = 2 * filter_scale;
  const double inverse = 1 / filter_scale;
  Filter filter;
  std::vector<double> weights;
  for (int out = 0; out < to; ++out) {
    const double center = (out + 0.5) * scale;
    // Takes the pixels whose centres lie within; casts truncate towards zero, as in Pillow.
    const double left = center - support + 0.5, right = center + support + 0.5;
    const int first = std::max(static_cast<int>(left), 0);
    const int end = std::min(static_cast<int>(right), from);
    weights.clear();
    double sum = 0;
    for (int x = first; x < end; ++x) {
      weights.push_back(Bicubic((x - center + 0.5) * inverse));
      sum += weights.back();
    }
    filter.taps.push_back({first, end - first, filter.weights.size()});
    for (const double weight : weights) {
      const double fixed = (sum != 0 ? weight / sum : weight) * (1 << kWeightBits);
      filter.weights.push_back(static_cast<int32_t>(fixed < 0 ? fixed - 0.5 : fixed + 0.5));
    }
  }
  return filter;
}

constexpr int32_t kHalf = 1 << (kWeightBits - 1);

uint8_t ToPixel(int32_t sum) {
  return static_cast<uint8_t>(std::clamp(sum >> kWeightBits, 0, 255));
}

// Scales every row of `in` to the width of `out`. Returns false if the caller no longer waits.
bool ResizeRows(const Picture& in, const DecodingWatch& watch, Picture* out) {
  const Filter filter = MakeFilter(in.width, out->width);
  for (int y = 0; y < out->height; ++y) {
    if (!watch.MayContinue()) return false;
    uint8_t* to = out->row(y);
    for (const Filter::Tap& tap : filter.taps) {
      const uint8_t* from = in.row(y) + static_cast<ptrdiff_t>(tap.first) * 3;
      int32_t r = kHalf, g = kHalf, b = kHalf;
      for (const int32_t weight : filter.Weights(tap)) {
        r += weight * from[0];
        g += weight * from[1];
        b += weight * from[2];
        from += 3;
      }
      *to++ = ToPixel(r);
      *to++ = ToPixel(g);
      *to++ = ToPixel(b);
    }
  }
  return true;
}

// Scales every column of `in` to the height of `out`, a row at a time because rows are contiguous.
// Returns false if the caller no longer waits.
bool ResizeColumns(const Picture& in, const DecodingWatch& watch, Picture* out) {
  const Filter filter = MakeFilter(in.height, out->height);
  std::vector<int32_t> sums(out->row_bytes());
  for (int y = 0; y < out->height; ++y) {
    if (!watch.MayContinue()) return false;
    const Filter::Tap& tap = filter.taps[static_cast<size_t>(y)];
    std::ranges::fill(sums, kHalf);
    int from_y = tap.first;
    for (const int32_t weight : filter.Weights(tap)) {
      const uint8_t* from = in.row(from_y++);
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += weight * from[i];
    }
    std::ranges::transform(sums, out->row(y), ToPixel);
  }
  return true;
}

constexpr char kScaled[] = "the scaled picture";

StatusOr<Picture> EmptyPicture(int width, int height, const DecodingWatch& watch) {
  Picture picture{.width = width, .height = height, .rgb = {}};
  KU_ASSIGN_OR_RETURN(picture.rgb,
                      NewBytes(picture.row_bytes() * static_cast<size_t>(height), kScaled, watch));
  return picture;
}

}  // namespace

StatusOr<PictureSize> FitPicture(PictureSize size, int64_t factor, PixelBudget budget,
                                 const std::string& name) {
  KU_RETURN_IF_ERROR(CheckRatio(size, name));
  const int64_t pixels = NearestMultiple(size.height, factor) * NearestMultiple(size.width, factor);
  return WithinBudget(size, 1, pixels, factor, budget);
}

StatusOr<PictureSize> FitVideo(int64_t num_frames, PictureSize size, int64_t factor,
                               int64_t temporal_factor, PixelBudget budget,
                               const std::string& name) {
  if (num_frames < temporal_factor) {
    return Status(StatusCode::kInput,
                  name + " has " + std::to_string(num_frames) + " frame; a video needs " +
                      std::to_string(temporal_factor),
                  "give it as an image");
  }
  if (std::min(size.height, size.width) < factor) {
    return Status(StatusCode::kInput,
                  name + " has frames of " + std::to_string(size.width) + "x" +
                      std::to_string(size.height) + " pixels; each side needs " +
                      std::to_string(factor),
                  "scale the frames up");
  }
  KU_RETURN_IF_ERROR(CheckRatio(size, name));
  const int64_t pixels = NearestMultiple(num_frames, temporal_factor) *
                         NearestMultiple(size.height, factor) * NearestMultiple(size.width, factor);
  return WithinBudget(size, static_cast<double>(num_frames), pixels, factor, budget);
}

StatusOr<Picture> Resize(const Picture& picture, PictureSize to, ScalingOrder order,
                         const DecodingWatch& watch) {
  const int width = static_cast<int>(to.width), height = static_cast<int>(to.height);
  if (width == picture.width && height == picture.height) return picture;
  const int64_t fewer_rows = picture.height - to.height, fewer_columns = picture.width - to.width;
  const bool columns_first =
      order == ScalingOrder::kPillow13 && fewer_rows > 0 && fewer_rows > 2 * fewer_columns;
  if (width == picture.width || (columns_first && height != picture.height)) {
    KU_ASSIGN_OR_RETURN(Picture low, EmptyPicture(picture.width, height, watch));
    if (!ResizeColumns(picture, watch, &low)) return DecodingStopped(kScaled);
    return Resize(low, to, order, watch);
  }
  KU_ASSIGN_OR_RETURN(Picture wide, EmptyPicture(width, picture.height, watch));
  if (!ResizeRows(picture, watch, &wide)) return DecodingStopped(kScaled);
  return Resize(wide, to, order, watch);
}

}  // namespace kuiper

// Linear layers with integer weights and integer activations. With few tokens, rows of W are
// multiplied in place and read once from memory. With more tokens, rows become panels in L2, by
// which all tiles of tokens are multiplied. Prepacked W is stored as such panels, and any number of
// tokens uses tiles. Sums of a quantisation block are exact and blocks are added in one order, so
// the result does not depend on this choice. Expected: one token at the read bandwidth, many at the
// rate of the tiles (avx512vnni.cpp) less some 5 % for packing.
#include <algorithm>

#include "kuiper/kernels/cpu/linear/job.h"

namespace kuiper::cpu {
namespace {

constexpr int kMaxColumns = kMaxFinishColumns;  // columns of a block
constexpr size_t kPanelsBytes = 256 << 10;      // bytes of the panels of a block, if more than one
constexpr size_t kStreamBytes = 256 << 10;      // bytes of the rows that a thread takes at a time
constexpr size_t kBytesAhead = 8 << 10;         // bytes prefetched before use, at least
constexpr size_t kPanelBytesOfElement = 2;      // bytes of a code in a panel, at most
constexpr int kMinUnit = 32, kItemsPerThread = 4;

size_t Aligned(size_t bytes) {
  return CeilDiv(bytes, kLine) * kLine;
}

// x as integers: the integers of all tokens, then scales and sums, [tokens][units].
struct IntegerX {
  int units;
  size_t stride;  // bytes of a token's integers
  uint8_t* integers;
  float* scales;
  int32_t* sums;

  explicit IntegerX(const LinearJob& job)
      : units(CeilDiv(job.in(), job.w.format().unit_columns())),
        stride(static_cast<size_t>(job.in()) * job.kernel.integer.element_bytes[job.narrow_x()]),
        integers(job.activations) {
    // Words are read as whole lines, also past the end.
    scales = reinterpret_cast<float*>(integers + Aligned(stride * job.tokens) + 2 * kLine);
    sums = reinterpret_cast<int32_t*>(scales + static_cast<size_t>(units) * job.tokens);
  }
};

void Convert(ThreadPool& pool, const LinearJob& job, const IntegerX& x, const Tensor& from) {
  const IntegerKernel& kernel = job.kernel.integer;
  const auto convert =
      (job.prepacked() ? kernel.convert_for_prepacked : kernel.convert)[job.narrow_x()];
  ForEachOf(pool, job, job.tokens, 4, [&](int begin, int end) {
    for (int t = begin; t < end; ++t) {
      convert(from.row<float>(t), job.in(), job.w.format().unit_columns(),
              x.integers + t * x.stride, x.scales + t * x.units, x.sums + t * x.units);
    }
  });
}

// A thread's workspace.
struct Space {
  uint8_t* panels;
  float* scales;          // [units][columns of a block]
  int32_t* zeros;         // [units][columns of a block]
  float* scales_of_rows;  // [row_block][units] and a cache line
  int32_t* zeros_of_rows;
  float* sums;  // [tokens of a tile][columns of a block]

  static size_t Bytes(int in) {
    const size_t units = CeilDiv(in, kMinUnit);
    return PanelBytes(in) + 2 * BlockBytes(units) + 2 * RowsBytes(units) +
           kMaxIntegerTokens * kMaxColumns * sizeof(float);
  }
  Space(uint8_t* base, int in) : panels(base) {
    const size_t units = CeilDiv(in, kMinUnit);
    scales = reinterpret_cast<float*>(base += PanelBytes(in));
    zeros = reinterpret_cast<int32_t*>(base += BlockBytes(units));
    scales_of_rows = reinterpret_cast<float*>(base += BlockBytes(units));
    zeros_of_rows = reinterpret_cast<int32_t*>(base += RowsBytes(units));
    sums = reinterpret_cast<float*>(base + RowsBytes(units));
  }

 private:
  static size_t PanelBytes(int in) { return Aligned(kPanelBytesOfElement * kMaxColumns * in); }
  static size_t BlockBytes(size_t units) { return units * kMaxColumns * sizeof(float); }
  static size_t RowsBytes(size_t units) {
    return Aligned((kSumLanes * units + kSumLanes) * sizeof(float));
  }
};

bool LeavesRows(const LinearJob& job) {
  return !job.prepacked() && job.tokens <= kMaxRowTokens &&
         job.kernel.integer.rows[job.narrow_x()][job.tokens] != nullptr;
}

// One thread's part of a call.
class Multiplier {
 public:
  Multiplier(const LinearJob& job, const IntegerX& x, const Space& space, int blocks)
      : job_(job), kernel_(job.kernel.integer), x_(x), space_(space), blocks_(blocks) {
    panel_bytes_ = static_cast<size_t>(job.in()) * kernel_.panel_bits / 8 * kernel_.columns;
    args_.x_stride = x.stride;
    args_.units = x.units;
    args_.row_stride = job.RowBytes(job.in());
    args_.k = job.in();
    args_.unit = job.w.format().unit_columns();
    args_.next = &next_;
  }

  Multiplier(const Multiplier&) = delete;  // args_ points to next_
  Multiplier& operator=(const Multiplier&) = delete;

  // Computes the columns of a range for a block of tokens; `after` are the rows to prefetch next.
  void operator()(const RowRange& range, const RowRange& after, int block) {
    if (LeavesRows(job_)) return MultiplyRows(range, after);
    MultiplyPanels(range, after, job_.tokens * block / blocks_,
                   job_.tokens * (block + 1) / blocks_);
  }

 private:
  void MultiplyRows(const RowRange& range, const RowRange& after);
  void MultiplyPanels(const RowRange& range, const RowRange& after, int begin, int end);
  void TakeScales(const RowRange& range, int row, int column, int stride);
  void SetFactors(int part, int stride);
  void MultiplyBlock(const RowRange& range, const RowRange& after, int begin, int end);
  void PackPanels(const RowRange& range);
  void SetPanel(const RowRange& range, int panel);
  void FetchAhead(const RowRange& range, int row, int rows, size_t distance, const RowRange& after);
  void FetchAfter(const RowRange& after, int64_t steps);
  void SetToken(int token);

  const LinearJob& job_;
  const IntegerKernel& kernel_;
  const IntegerX& x_;
  const Space space_;
  const int blocks_;
  size_t panel_bytes_;
  IntegerArgs args_;
  LineFetcher next_;
};

void Multiplier::SetToken(int token) {
  args_.x = x_.integers + token * x_.stride;
  args_.x_scales = x_.scales + token * x_.units;
  args_.x_sums = x_.sums + token * x_.units;
}

// Expands scales and zero points of row_block rows into space_, columns from `column` on.
void Multiplier::TakeScales(const RowRange& range, int row, int column, int stride) {
  const WeightMatrix& w = job_.w.parts[range.part].weight;
  const int rows = std::min(kernel_.row_block, range.end - row), units = x_.units;
  const bool has_zeros = !w.zeros.empty();
  const auto take = [&](const void* from, DType type, void* to) {
    kernel_.transpose(static_cast<const uint8_t*>(from), units * DTypeBytes(type), type, rows,
                      units, static_cast<uint32_t*>(to) + column, stride);
  };
  // True if each row has its own scale for each quantisation block.
  const bool direct = kernel_.takes_all_types && w.format.group_rows == 1 &&
                      w.format.column_groups(job_.in()) == units;
  if (direct) {
    take(static_cast<const uint8_t*>(w.scales.data) +
             static_cast<size_t>(row) * units * DTypeBytes(w.scales.dtype),
         w.scales.dtype, space_.scales);
    if (has_zeros) take(w.zeros.row<uint8_t>(row), DType::kU8, space_.zeros);
    return;
  }
  job_.kernel.widen(w, {row, rows, 0, job_.in()}, space_.scales_of_rows,
                    has_zeros ? space_.zeros_of_rows : nullptr);
  take(space_.scales_of_rows, DType::kF32, space_.scales);
  if (has_zeros) take(space_.zeros_of_rows, DType::kI32, space_.zeros);
}

// Sets the scales and zero points that TakeScales has written.
void Multiplier::SetFactors(int part, int stride) {
  const WeightMatrix& w = job_.w.parts[part].weight;
  args_.scales = space_.scales;
  args_.zeros = w.zeros.empty() ? nullptr : space_.zeros;
  args_.default_zero = w.format.default_zero();
  args_.scale_stride = stride;
}

// Sets what to prefetch with the next `rows` rows, spread over their quantisation blocks: the same
// number of bytes, starting `distance` bytes after `row`. Past the end of the range it continues in
// `after`.
void Multiplier::FetchAhead(const RowRange& range, int row, int rows, size_t distance,
                            const RowRange& after) {
  const size_t row_bytes = args_.row_stride;
  const size_t ahead = (row - range.begin) * row_bytes + distance;
  const size_t left = (range.end - range.begin) * row_bytes;
  next_ = {};
  if (ahead < left) {
    next_.at = job_.W(range.part, range.begin, 0).values + ahead;
  } else if (ahead - left < (after.end - after.begin) * row_bytes) {
    next_.at = job_.W(after.part, after.begin, 0).values + (ahead - left);
  } else {
    return;
  }
  next_.lines = static_cast<int64_t>(CeilDiv(rows * row_bytes, kLine));
  args_.next_lines = static_cast<int>(CeilDiv<int64_t>(next_.lines, x_.units));
}

// Sets up the prefetch of all of `after`, in `steps` steps.
void Multiplier::FetchAfter(const RowRange& after, int64_t steps) {
  next_ = {};
  if (after.end <= after.begin) return;
  next_.at = job_.W(after.part, after.begin, 0).values;
  next_.lines = static_cast<int64_t>(CeilDiv((after.end - after.begin) * args_.row_stride, kLine));
  args_.next_lines = static_cast<int>(CeilDiv(next_.lines, steps));
}

void Multiplier::MultiplyRows(const RowRange& range, const RowRange& after) {
  SetToken(0);
  args_.sum_stride = kMaxColumns;
  SetFactors(range.part, kernel_.row_block);
  const size_t distance = std::max(kernel_.row_block * args_.row_stride, kBytesAhead);
  RowRange columns = range;
  for (; columns.begin < range.end; columns.begin = columns.end) {
    columns.end = std::min(columns.begin + kMaxColumns, range.end);
    for (int row = columns.begin; row < columns.end; row += kernel_.row_block) {
      TakeScales(columns, row, 0, kernel_.row_block);
      FetchAhead(range, row, kernel_.row_block, distance, after);
      args_.weights = job_.W(range.part, row, 0).values;
      args_.rows = std::min(kernel_.row_block, columns.end - row);
      args_.sums = space_.sums + (row - columns.begin);
      kernel_.rows[job_.narrow_x()][job_.tokens](args_);
    }
    FinishRows(job_, columns, 0, job_.tokens, space_.sums, kMaxColumns);
    columns.column += columns.end - columns.begin;
  }
}

int PanelsOf(const RowRange& range, int columns) {
  return CeilDiv(range.end - range.begin, columns);
}

void Multiplier::PackPanels(const RowRange& range) {
  const int panels = PanelsOf(range, kernel_.columns), columns = panels * kernel_.columns;
  for (int p = 0; p < panels; ++p) {
    const int row = range.begin + p * kernel_.columns;
    for (int i = 0; i < kernel_.columns && row + i < range.end; i += kernel_.row_block) {
      TakeScales(range, row + i, row + i - range.begin, columns);
    }
    kernel_.pack(job_.W(range.part, row, 0).values, args_.row_stride,
                 std::min(kernel_.columns, range.end - row), job_.in(),
                 space_.panels + p * panel_bytes_, &next_, args_.next_lines);
  }
}

void Multiplier::SetPanel(const RowRange& range, int panel) {
  if (!job_.prepacked()) {
    SetFactors(range.part, PanelsOf(range, kernel_.columns) * kernel_.columns);
    args_.weights = space_.panels + panel * panel_bytes_;
    args_.scales = space_.scales + panel * kernel_.columns;
    if (args_.zeros != nullptr) args_.zeros = space_.zeros + panel * kernel_.columns;
    return;
  }
  const WeightMatrix& w = job_.w.parts[range.part].weight;
  const int row = range.begin + panel * kernel_.columns;
  const int64_t groups = w.scales.shape[1];
  args_.weights = job_.W(range.part, row, 0).values;
  args_.scales =
      static_cast<const uint8_t*>(w.scales.data) + row * groups * DTypeBytes(w.scales.dtype);
  args_.scale_type = w.scales.dtype;
  args_.scale_stride = groups == x_.units ? kernel_.columns : 0;
  args_.zeros = w.zeros.empty() ? nullptr : w.zeros.row<uint8_t>(0) + row * groups;
  args_.zero_type = DType::kU8;
  args_.default_zero = w.format.default_zero();
}

void Multiplier::MultiplyBlock(const RowRange& range, const RowRange& after, int begin, int end) {
  const int panels = PanelsOf(range, kernel_.columns), columns = panels * kernel_.columns;
  const int tiles = CeilDiv(end - begin, kernel_.max_tokens);
  const bool streams = job_.prepacked() && tiles == 1;
  if (!job_.prepacked()) {
    const int row_blocks = kernel_.columns / kernel_.row_block;
    const auto row_lines = static_cast<int64_t>(CeilDiv(args_.row_stride, kLine));
    FetchAfter(after, panels * (row_blocks * row_lines + int64_t{tiles} * x_.units));
    PackPanels(range);
  } else if (!streams) {
    FetchAfter(after, int64_t{panels} * tiles * x_.units);
  }
  const auto& tile_of =
      job_.prepacked() ? kernel_.prepacked[job_.narrow_x()] : kernel_.tiles[job_.narrow_x()];
  args_.sum_stride = columns;
  for (int tile = 0; tile < tiles; ++tile) {
    const int token = begin + static_cast<int>(int64_t{end - begin} * tile / tiles);
    const int count = begin + static_cast<int>(int64_t{end - begin} * (tile + 1) / tiles) - token;
    SetToken(token);
    for (int p = 0; p < panels; ++p) {
      SetPanel(range, p);
      if (streams) {
        FetchAhead(range, range.begin + p * kernel_.columns, kernel_.columns, kBytesAhead, after);
      }
      args_.sums = space_.sums + p * kernel_.columns;
      tile_of[count](args_);
    }
    FinishRows(job_, range, token, count, space_.sums, columns);
  }
}

// Returns the first block of a range.
RowRange BlockOf(RowRange range) {
  range.end = std::min(range.end, range.begin + kMaxColumns);
  return range;
}

void Multiplier::MultiplyPanels(const RowRange& range, const RowRange& after, int begin, int end) {
  RowRange left = range;
  while (left.begin < range.end) {
    const RowRange block = BlockOf(left);
    left.column += block.end - block.begin;
    left.begin = block.end;
    MultiplyBlock(block, BlockOf(left.begin < range.end ? left : after), begin, end);
  }
}

// True if W is read once and memory limits the speed.
bool Streams(const LinearJob& job) {
  return LeavesRows(job) || (job.prepacked() && job.tokens <= job.kernel.integer.max_tokens);
}

// Returns the rows of W per work item.
int RowsOfItem(const LinearJob& job, int threads) {
  const IntegerKernel& kernel = job.kernel.integer;
  const auto fits = [&](int rows) { return CountItems(job, rows) >= kItemsPerThread * threads; };
  if (Streams(job)) {
    int rows = static_cast<int>(kStreamBytes / job.RowBytes(job.in())) / kMaxColumns * kMaxColumns;
    rows = std::max(rows, kMaxColumns);
    const int step = job.prepacked() ? kernel.columns : kSumLanes;
    while (rows > step && !fits(rows)) rows = CeilDiv(rows / 2, step) * step;
    return rows;
  }
  const size_t bytes = static_cast<size_t>(job.in()) * kernel.panel_bits / 8 * kMaxColumns;
  return bytes <= kPanelsBytes && fits(kMaxColumns) ? kMaxColumns : kernel.columns;
}

}  // namespace

size_t IntegerScratchBytes(int in) {
  return Space::Bytes(in);
}

void ApplyInteger(ThreadPool& pool, const LinearJob& job, const Tensor& from,
                  const Workspace& workspace) {
  const IntegerX x(job);
  Convert(pool, job, x, from);
  const int rows = RowsOfItem(job, pool.size());
  // Tokens are divided if the columns would not occupy all threads.
  const int wanted = CeilDiv(kItemsPerThread * pool.size(), std::max(CountItems(job, rows), 1));
  const int blocks = std::clamp(job.tokens / (4 * kMaxIntegerTokens), 1, wanted);
  ForEachRange(pool, job, rows, blocks, [&](int thread) {
    return Multiplier(job, x, Space(workspace.of(thread), job.in()), blocks);
  });
}

}  // namespace kuiper::cpu

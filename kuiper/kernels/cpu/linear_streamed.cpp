// Linear layers with few tokens: W streams once from the mapped file, in runs of ~256 KiB, which
// threads claim from an atomic counter, because a virtual CPU may be taken away at any time.
//
// A run is read in tiles of four rows by a sub-block of K, which the rows of x need together. While
// a tile is multiplied those behind it are fetched into L2, one row after the other: rows side by
// side are read at a third to a half of the rate of linear bursts, and of lines for L1 too few are
// under way to keep memory busy. With one token or two rows may be read one by one instead. Where a
// tile holds all tokens, and whole rows, several of them are a piece, since what is done for each
// piece takes as long as a fourth of a tile. Where sums do not stay in registers until their fold
// (all but AVX-512), tiles cut whole rows into sub-blocks themselves, and pieces are for all
// tokens. Bytes moved: W. Expected 0.95 of the read bandwidth at T = 1, 0.85 up to 8 tokens in BF16
// with AVX-512.
#include <algorithm>

#include "kuiper/kernels/cpu/cpu_kernels.h"
#include "kuiper/kernels/cpu/flush_subnormals.h"
#include "kuiper/kernels/cpu/linear_job.h"

namespace kuiper::cpu {
namespace {

constexpr int kStreamBytes = 256 << 10;
constexpr int kGroupTokens = 20;  // whose sub-blocks of x stay in L1, nearly
constexpr int kPieceRows = 16;    // of W, at most
constexpr int kLinesAhead = 128;  // that are fetched before they are used, at least a tile's

// Sums whose lanes wait: of a tile of all tokens, or of all rows of a piece and a tile of tokens.
constexpr int kTileSums = kGroupTokens * kPanelRows, kPieceSums = kMaxTileRows * kPieceRows;

// `rows` rows of W from `row` of a part on, columns [begin, end); tiles have `tile_rows` of them.
struct Piece {
  int part, row, rows, tile_rows;
  int begin, end;
};

// Whether columns and number of rows are the same.
bool HaveShape(const Piece& a, const Piece& b) {
  return a.begin == b.begin && a.end == b.end && a.rows == b.rows && a.tile_rows == b.tile_rows;
}

// What a thread computes on.
class Stream {
 public:
  explicit Stream(const LinearJob& job) : job_(job) {}

  // y [T, rows of the range], `stride` floats from token to token, is set to the sums plus bias or,
  // with `add`, grows by them. `after` are the rows to fetch behind these.
  void Multiply(const RowRange& range, const RowRange& after, float* y, size_t stride, bool add);

 private:
  Piece Next(const Piece& piece, const RowRange& range, const RowRange& after) const;
  Piece First(const RowRange& range, int row) const;
  void SetColumns(const Piece& piece);
  int NextLines(const Piece& next) const;
  void MultiplyPiece(const Piece& piece, const Piece& next);
  void Write(const Piece& piece, float* y, size_t stride, bool add) const;

  const LinearJob& job_;
  int begin_ = 0, end_ = 0;  // tokens of the group
  // Of the piece before, which has the columns of the next one unless rows are longer than a
  // sub-block: a piece takes a few hundred cycles, and divisions would be a fourth of them.
  TileArgs args_;
  Piece columns_ = {};
  int lines_after_ = 0;  // TileArgs::next_lines where the next piece is of the same shape
  alignas(64) float lanes_[std::max(kTileSums, kPieceSums) * kSumLanes];
  alignas(64) float sums_[kGroupTokens * kPieceRows];  // [tokens][rows of the piece]
  Groups<kPieceRows> groups_;
};

// The first piece of a range from `row` on; with no rows behind its end.
Piece Stream::First(const RowRange& range, int row) const {
  const int left = range.end - row;
  const bool one_by_one = left < kPanelRows || (job_.tokens <= 2 && job_.kernel.rows_one_by_one &&
                                                !job_.are_weights_cached);
  const int tile_rows = one_by_one ? 1 : kPanelRows;
  const bool whole = job_.kernel.takes_whole_rows || job_.tokens <= job_.kernel.tile_rows;
  const int rows = std::min(left, whole && job_.in() <= job_.sub_k() ? kPieceRows : tile_rows);
  return {range.part, row, rows / tile_rows * tile_rows,
          tile_rows,  0,   std::min(job_.in(), job_.sub_k())};
}

Piece Stream::Next(const Piece& piece, const RowRange& range, const RowRange& after) const {
  if (piece.end < job_.in()) {
    Piece next = piece;
    next.begin = piece.end;
    next.end = std::min(job_.in(), piece.end + (piece.end - piece.begin));
    return next;
  }
  const int row = piece.row + piece.rows;
  return row < range.end ? First(range, row) : First(after, after.begin);
}

// Lines to fetch with each chunk of a tile of these columns.
int Stream::NextLines(const Piece& next) const {
  const int tiles = CeilDiv(end_ - begin_, job_.kernel.tile_rows);
  const int bursts = std::max(1, args_.k / job_.kernel.chunk * tiles);
  return CeilDiv(job_.Lines(next.end - next.begin) * next.tile_rows, bursts);
}

void Stream::SetColumns(const Piece& piece) {
  const int k0 = piece.begin;
  args_.x_stride = job_.XStride(k0);
  args_.k = piece.end - k0;
  args_.tiles = piece.rows / piece.tile_rows;
  args_.lines = job_.Lines(args_.k);
  args_.ahead = job_.kernel.takes_whole_rows
                    ? args_.tiles
                    : std::clamp(kLinesAhead / (args_.lines * piece.tile_rows), 1, args_.tiles);
  args_.first = k0 % job_.fold_k() == 0;
  args_.last = piece.end == job_.in() || piece.end % job_.fold_k() == 0;
  args_.sum_stride = piece.rows;
  args_.add = k0 >= job_.fold_k();
  columns_ = piece;
  lines_after_ = NextLines(piece);
}

void Stream::MultiplyPiece(const Piece& piece, const Piece& next) {
  if (!HaveShape(piece, columns_)) SetColumns(piece);
  args_.w = job_.W(piece.part, piece.row, piece.begin);
  if (job_.quantized()) {
    groups_.Widen(job_, piece.part, {piece.row, piece.rows, piece.begin, piece.end});
    groups_.Give(job_, 0, 0, &args_.w);
  }
  args_.next = {};
  if (next.rows > 0) {
    args_.next = job_.Fetch(next.part, next.row, std::min(next.rows, args_.ahead * next.tile_rows),
                            next.begin, next.end);
    args_.next_lines = HaveShape(next, columns_) ? lines_after_ : NextLines(next);
  }
  const TileFn* fns = piece.tile_rows == 1 ? job_.kernel.stored1 : job_.kernel.stored4;
  args_.lanes = lanes_;
  args_.sums = sums_;
  for (int t = begin_, rows = 0; t < end_; t += rows) {
    rows = LinearJob::NextRows(end_ - t, job_.kernel.tile_rows);
    args_.x = job_.X(piece.begin, t);
    fns[rows](args_);
    if (args_.tiles == 1) args_.lanes += rows * piece.rows * kSumLanes;
    args_.sums += rows * piece.rows;
  }
}

void Stream::Write(const Piece& piece, float* y, size_t stride, bool add) const {
  const Tensor& bias = job_.w.parts[piece.part].bias;
  for (int n = 0; n < piece.rows; ++n) {
    const float b = bias.empty() ? 0.0f : BiasAt(bias, piece.row + n);
    for (int t = begin_; t < end_; ++t) {
      const float value = sums_[(t - begin_) * piece.rows + n];
      const float sum = bias.empty() ? value : value + b;
      float* const to = y + t * stride + n;
      *to = add ? *to + sum : sum;
    }
  }
}

void Stream::Multiply(const RowRange& range, const RowRange& after, float* y, size_t stride,
                      bool add) {
  const int groups = CeilDiv(job_.tokens, kGroupTokens);
  for (int group = 0; group < groups; ++group) {
    begin_ = job_.tokens * group / groups;
    end_ = job_.tokens * (group + 1) / groups;
    columns_ = {};
    const RowRange& behind = group + 1 < groups ? range : after;
    for (Piece piece = First(range, range.begin), next;; piece = next) {
      next = Next(piece, range, behind);
      MultiplyPiece(piece, next);
      if (piece.end < job_.in()) continue;
      Write(piece, y + (piece.row - range.begin), stride, add);
      if (piece.row + piece.rows == range.end) break;
    }
  }
}

}  // namespace

void MultiplyStreamed(const LinearJob& job, const RowRange& range, const RowRange& after,
                      float* up) {
  Stream stream(job);
  float* y = job.out + range.column;
  const int columns = range.end - range.begin;
  stream.Multiply(range, job.paired() ? UpRows(range) : after, y, job.out_stride,
                  range.epilogue == Epilogue::kAdd);
  for (int t = 0; t < job.tokens && IsGelu(job.epilogue); ++t) {
    GeluRow(job.epilogue, y + t * job.out_stride, columns);
  }
  if (!job.paired()) return;
  stream.Multiply(UpRows(range), after, up, columns, /*add=*/false);
  for (int t = 0; t < job.tokens; ++t) {
    SiluMulRow(y + t * job.out_stride, up + t * columns, columns);
  }
}

void ApplyStreamed(ThreadPool& pool, const LinearJob& job, uint8_t* workspace,
                   size_t workspace_bytes) {
  // About 256 KiB of W per item, but at least four items per thread, and with SwiGLU the sums of up
  // must fit into the workspace.
  const int by_bytes = static_cast<int>(kStreamBytes / job.RowBytes(job.in()));
  const int by_threads = OutputColumns(job.w, job.epilogue) / (4 * pool.size());
  const int by_space = static_cast<int>(workspace_bytes / (job.tokens * sizeof(float)));
  const int step = std::max(16, std::min({by_bytes, by_threads, by_space}) / 16 * 16);
  const int items = CountItems(job, step);
  WorkShares& shares = pool.Divide(items);
  pool.Run([&](int thread) {
    const ScopedFlushSubnormals flush(job.kernel.flush_subnormals);
    float* up = reinterpret_cast<float*>(workspace + thread * workspace_bytes);
    const auto rows = [&](int item) {
      return item < items ? FindRows(job, item, step) : RowRange{};
    };
    ForEachTaken(shares, thread, items,
                 [&](int item, int next) { MultiplyStreamed(job, rows(item), rows(next), up); });
  });
}

}  // namespace kuiper::cpu

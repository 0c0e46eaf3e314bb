// Linear layers with few tokens. W is read once from the mapped file, in runs of ~256 KiB. Threads
// claim runs from an atomic counter, because a virtual CPU may be taken away at any time.
//
// A run is read in tiles of four rows by a sub-block of K, which all tokens use together. While a
// tile is multiplied, the next ones are prefetched into L2, one row after the other. Reading
// adjacent rows in parallel has a third to a half of the rate of such linear bursts. L1 alone can
// wait for too few lines at once to keep memory busy. With one or two tokens, rows may be read one
// by one instead.
//
// If a tile holds all tokens and whole rows, several tiles form one piece, because the work for
// each piece takes as long as a fourth of a tile. If sums do not stay in registers until their lane
// reduction (all sets but AVX-512), tiles themselves cut whole rows into sub-blocks, and a piece
// includes all tokens. Bytes moved: W. Expected: 0.95 of the read bandwidth at T = 1, 0.85 up to 8
// tokens in BF16 with AVX-512.
#include <algorithm>

#include "kuiper/kernels/cpu/linear/job.h"

namespace kuiper::cpu {
namespace {

constexpr int kStreamBytes = 256 << 10;
constexpr int kGroupTokens = 20;  // sub-blocks of x of this many tokens nearly fit in L1
constexpr int kPieceRows = 16;    // rows of W, at most
constexpr int kLinesAhead = 128;  // lines prefetched before use; at least those of a tile

// Sums kept as lanes: of a tile for all tokens, or of all rows of a piece for a tile of tokens.
constexpr int kTileSums = kGroupTokens * kPanelRows, kPieceSums = kMaxTileRows * kPieceRows;

// Columns [begin, end) of `rows` rows of a part of W from `row` on, in tiles of `tile_rows` rows.
struct Piece {
  int part, row, rows, tile_rows;
  int begin, end;
};

// True if columns and number of rows are equal.
bool HaveShape(const Piece& a, const Piece& b) {
  return a.begin == b.begin && a.end == b.end && a.rows == b.rows && a.tile_rows == b.tile_rows;
}

// The state of one thread.
class Stream {
 public:
  explicit Stream(const LinearJob& job) : job_(job) {}

  // Computes the output of a range; `after` are the rows to prefetch next.
  void operator()(const RowRange& range, const RowRange& after, int block = 0);

 private:
  Piece Next(const Piece& piece, const RowRange& range, const RowRange& after) const;
  Piece First(const RowRange& range, int row) const;
  void SetColumns(const Piece& piece);
  int NextLines(const Piece& next) const;
  void MultiplyPiece(const Piece& piece, const Piece& next, int column);

  const LinearJob& job_;
  int begin_ = 0, end_ = 0;  // tokens of the group
  // Kept from the previous piece. Columns only change if rows are longer than a sub-block, and
  // computing these again takes divisions, a fourth of the few hundred cycles of a piece.
  TileArgs args_;
  Piece columns_ = {};
  int lines_after_ = 0;  // TileArgs::next_lines if the next piece has the same shape
  alignas(64) float lanes_[std::max(kTileSums, kPieceSums) * kSumLanes];
  alignas(64) float sums_[kGroupTokens * kPieceRows];  // [tokens][rows]
  Groups<kPieceRows> groups_;
};

// Returns the first piece of a range from `row` on; it has no rows if `row` is the end of the
// range.
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

// Returns the lines to prefetch with each K slice of a tile of these columns.
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
  // kernel.chunk is 16 or 32, which the analyzer does not see.
  const int fold_k = job_.fold_k();
  args_.first = k0 % fold_k == 0;  // NOLINT(clang-analyzer-core.DivideZero)
  args_.last = piece.end == job_.in() || piece.end % fold_k == 0;
  args_.sum_stride = kPieceRows;
  args_.add = k0 >= fold_k;
  columns_ = piece;
  lines_after_ = NextLines(piece);
}

void Stream::MultiplyPiece(const Piece& piece, const Piece& next, int column) {
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
  args_.sums = sums_ + column;
  for (int t = begin_, rows = 0; t < end_; t += rows) {
    rows = LinearJob::NextRows(end_ - t, job_.kernel.tile_rows);
    args_.x = job_.X(piece.begin, t);
    fns[rows](args_);
    if (args_.tiles == 1) args_.lanes += rows * piece.rows * kSumLanes;
    args_.sums += rows * kPieceRows;
  }
}

void Stream::operator()(const RowRange& range, const RowRange& after, int /*block*/) {
  const int groups = CeilDiv(job_.tokens, kGroupTokens);
  for (int group = 0; group < groups; ++group) {
    begin_ = job_.tokens * group / groups;
    end_ = job_.tokens * (group + 1) / groups;
    columns_ = {};
    const RowRange& behind = group + 1 < groups ? range : after;
    // Rows whose sums are finished together; one piece of four rows would be too few.
    RowRange rows = range;
    for (Piece piece = First(range, range.begin), next; rows.begin < range.end; piece = next) {
      next = Next(piece, range, behind);
      MultiplyPiece(piece, next, piece.row - rows.begin);
      if (piece.end < job_.in()) continue;
      rows.end = piece.row + piece.rows;
      if (rows.end - rows.begin < kPieceRows && rows.end < range.end) continue;
      FinishRows(job_, rows, begin_, end_ - begin_, sums_, kPieceRows);
      rows.column += rows.end - rows.begin;
      rows.begin = rows.end;
    }
  }
}

}  // namespace

void MultiplyStreamed(const LinearJob& job, const RowRange& range, const RowRange& after) {
  Stream stream(job);
  stream(range, after);
}

void ApplyStreamed(ThreadPool& pool, const LinearJob& job, const Workspace& /*workspace*/) {
  // About 256 KiB of W per item, but at least four items per thread.
  const int by_bytes = static_cast<int>(kStreamBytes / job.RowBytes(job.in()));
  const int by_threads = OutputColumns(job.w, job.epilogue) / (4 * pool.size());
  const int step = std::max(16, std::min(by_bytes, by_threads) / 16 * 16);
  ForEachRange(pool, job, step, 1, [&](int) { return Stream(job); });
}

}  // namespace kuiper::cpu

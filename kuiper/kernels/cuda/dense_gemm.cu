// Chooses among a library's algorithms. If the library does not guarantee the order of a sum,
// RowsKeepTheirBits checks it.
#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "kuiper/base/check.h"
#include "kuiper/base/clock.h"
#include "kuiper/base/fatal.h"
#include "kuiper/kernels/cuda/cuda_check.h"
#include "kuiper/kernels/cuda/dense_gemm.h"
#include "kuiper/kernels/cuda/row_check.h"

namespace kuiper::KU_GPU {
namespace {

// Returns the name of a product in the file of choices.
std::string NameOf(const GemmShape& shape) {
  return std::to_string(shape.n) + " x " + std::to_string(shape.k) + ' ' + DTypeName(shape.type) +
         " to " + DTypeName(shape.out_type) + (shape.add ? " added" : "") +
         (shape.stride == shape.n ? "" : " in rows of " + std::to_string(shape.stride));
}

// Tries algorithms for one product on all its rows.
class Trial {
 public:
  Trial(const GemmLibrary& library, void* workspace, cudaStream_t stream, const GemmArgs& args)
      : library_(library), workspace_(workspace), stream_(stream), args_(args) {}

  // Runs rows [first, first + count) as a product of their own and stores them in rows [0, count)
  // of the output. Returns true if the library accepts the call.
  bool Runs(const GemmAlgorithm& algorithm, int first, int count) const {
    const GemmArgs some{args_.out.Rows(0, count), args_.x.Rows(first, first + count), args_.weight,
                        args_.add};
    return library_.Multiply(algorithm, some, workspace_, stream_).ok();
  }

  // True if the library supports the algorithm for each number of rows. Computes nothing.
  bool SupportsAllRows(const GemmAlgorithm& algorithm) const {
    const int64_t rows = args_.x.rows();
    for (int64_t count = 1; count <= rows; ++count) {
      if (!library_.Supports(algorithm, {args_.out.Rows(0, count), args_.x.Rows(0, count),
                                         args_.weight, args_.add})) {
        return false;
      }
    }
    return true;
  }

  bool KeepsRows(const GemmAlgorithm& algorithm) const {
    const int rows = static_cast<int>(args_.x.rows());
    const size_t row_bytes = DTypeBytes(args_.out.dtype) * static_cast<size_t>(args_.out.stride[0]);
    bool runs = true;
    const auto product = [&](int first, int count) {
      std::vector<char> result(row_bytes * count);
      KU_CUDA_CHECK(cudaMemsetAsync(args_.out.data, 0, result.size(), stream_));
      runs = runs && Runs(algorithm, first, count);
      KU_CUDA_CHECK(cudaStreamSynchronize(stream_));
      KU_CUDA_CHECK(
          cudaMemcpy(result.data(), args_.out.data, result.size(), cudaMemcpyDeviceToHost));
      return result;
    };
    return RowsKeepTheirBits(rows, row_bytes, product) && runs;
  }

  // Returns the seconds of a product of `rows` rows: the best of three series.
  double Seconds(const GemmAlgorithm& algorithm, int rows) const {
    constexpr int kProducts = 5;
    double best = std::numeric_limits<double>::infinity();
    for (int series = 0; series < 3; ++series) {
      KU_CUDA_CHECK(cudaStreamSynchronize(stream_));
      const Clock::time_point begin = Clock::now();
      for (int i = 0; i < kProducts; ++i) {
        if (!Runs(algorithm, 0, rows)) return std::numeric_limits<double>::infinity();
      }
      KU_CUDA_CHECK(cudaStreamSynchronize(stream_));
      best = std::min(best, SecondsSince(begin) / kProducts);
    }
    return best;
  }

 private:
  const GemmLibrary& library_;
  void* workspace_;
  cudaStream_t stream_;
  GemmArgs args_;
};

}  // namespace

DenseGemm::DenseGemm(std::unique_ptr<GemmLibrary> library, const OpsOptions& options,
                     const std::string& model)
    : library_(std::move(library)),
      name_(model + ", " + library_->Name()),
      check_rows_(options.determinism == Determinism::kOn) {
  if (options.tune) {
    timing_ = GemmTiming::kForTheFile;
  } else if (!check_rows_) {
    timing_ = GemmTiming::kForThisRun;
  }
}

StatusOr<std::optional<GemmAlgorithm>> DenseGemm::Choose(cudaStream_t stream, Ops& memory,
                                                         const Tensor& weight,
                                                         const GemmShape& shape, int max_rows) {
  // Algorithms are proposed and timed for a prefill chunk of the usual size, whatever the largest
  // step is, so that max_num_batched_tokens does not affect bits.
  constexpr int kUsualRows = 512;
  const int rows = std::max(max_rows, kUsualRows);
  const size_t x_bytes = DTypeBytes(shape.type) * shape.k * static_cast<size_t>(rows);
  const size_t y_bytes = DTypeBytes(shape.out_type) * shape.stride * static_cast<size_t>(rows);
  KU_ASSIGN_OR_RETURN(const Buffer x_memory, memory.device().Allocate(x_bytes));
  KU_ASSIGN_OR_RETURN(const Buffer y_memory, memory.device().Allocate(y_bytes));
  const GemmArgs all{y_memory.As(shape.out_type, {rows, shape.stride}).Cols(0, shape.n),
                     x_memory.As(shape.type, {rows, shape.k}), weight, shape.add};
  const std::vector<GemmAlgorithm> proposals =
      library_->Propose({all.out.Rows(0, kUsualRows), all.x.Rows(0, kUsualRows), weight, all.add});
  memory.Run(FillRandomArgs{.out = all.x});
  const Trial trial(*library_, workspace_, stream, all);
  GemmCandidates candidates;
  candidates.count = static_cast<int>(proposals.size());
  candidates.key = name_ + ", " + NameOf(shape) + (check_rows_ ? ", rows checked" : "") + ", of " +
                   std::to_string(candidates.count);
  candidates.usable = [&](int i) {
    if (!trial.SupportsAllRows(proposals[i])) return false;
    return !library_->NeedsTrial() ||
           (check_rows_ ? trial.KeepsRows(proposals[i]) : trial.Runs(proposals[i], 0, rows));
  };
  candidates.seconds = [&](int i) { return trial.Seconds(proposals[i], kUsualRows); };
  const std::optional<int> choice = ChooseGemm(candidates, timing_, choices_);
  KU_CUDA_CHECK(cudaStreamSynchronize(stream));  // before the memory is freed
  if (!choice.has_value()) return std::optional<GemmAlgorithm>();
  return std::optional<GemmAlgorithm>(proposals[*choice]);
}

Status DenseGemm::Prepare(cudaStream_t stream, Ops& memory, const Tensor& weight,
                          const GemmShape& shape, int max_rows) {
  if (algorithms_.contains(shape)) return OkStatus();
  KU_ASSIGN_OR_RETURN(algorithms_[shape], Choose(stream, memory, weight, shape, max_rows));
  return OkStatus();
}

bool DenseGemm::Has(const GemmShape& shape) const {
  const auto known = algorithms_.find(shape);
  return known != algorithms_.end() && known->second.has_value();
}

void DenseGemm::Run(cudaStream_t stream, const GemmArgs& args) const {
  const auto& algorithm = algorithms_.at(ShapeOf(args.weight, args.out, args.add));
  const Status status = library_->Multiply(*algorithm, args, workspace_, stream);
  if (!status.ok()) Fatal(kDeviceExitCode, status.message());
}

}  // namespace kuiper::KU_GPU

// CopyPages. Parallel over the runs of all copied pages (a run: the K or V rows of one kv head of
// one layer in a page); bound by memory.
#include <cstring>

#include "kuiper/kernels/common/visit.h"
#include "kuiper/kernels/cpu/cpu_kernels.h"

namespace kuiper::cpu {

void Run(const Resources& resources, const CopyPagesArgs& args) {
  const Tensor& copies = args.copies;
  const int64_t runs = args.kv.runs_per_page();
  VisitKv(args.kv, [&](const auto& view) {
    const int64_t units = copies.rows() * runs * view.MaxRunUnits();
    ForEachItem(resources.pool, copies.rows() * runs, units, [&](int64_t item, int) {
      const int32_t* copy = copies.row<int32_t>(item / runs);
      auto* to = view.Run(copy[1], item % runs);
      const auto* from = view.Run(copy[0], item % runs);
      for (int i = 0; i < view.kRunParts; ++i) {
        const auto part = view.PartOfRun(i, copy[2]);
        KU_CHECK(part.size >= 0 && part.begin + part.size <= view.MaxRunUnits(),
                 "more tokens than a page has");
        std::memcpy(to + part.begin, from + part.begin, part.size * sizeof(*to));
      }
    });
  });
}

}  // namespace kuiper::cpu

// CopyPages. Parallel over the runs of all copied pages; bound by memory.
#include <cstring>

#include "kuiper/kernels/common/visit.h"
#include "kuiper/kernels/cpu/cpu_kernels.h"

namespace kuiper::cpu {

void Run(const Resources& resources, const CopyPagesArgs& args) {
  const KvView& kv = args.kv;
  const Tensor& copies = args.copies;
  const int64_t runs = kv.s.page_stride / kv.s.v_offset;
  VisitKv(kv, [&](const auto& view) {
    ForEachItem(resources.pool, copies.rows() * runs, copies.rows() * kv.s.page_stride,
                [&](int64_t item, int) {
                  const int32_t* copy = copies.row<int32_t>(item / runs);
                  const int64_t elements = int64_t{copy[2]} * view.s.head_dim;
                  KU_CHECK(elements >= 0 && elements <= view.s.v_offset,
                           "more tokens than a page has");
                  const int64_t begin = item % runs * view.s.v_offset;
                  std::memcpy(view.Page(copy[1]) + begin, view.Page(copy[0]) + begin,
                              elements * sizeof(*view.Page(0)));
                });
  });
}

}  // namespace kuiper::cpu

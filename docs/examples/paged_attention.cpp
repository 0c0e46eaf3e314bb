// A prompt and one decode step over a KV cache of the program's own (docs/paged_attention.md).
// All keys are equal, so a token attends to the mean of the values it sees: 0, 1, 2, ...
#include "kuiper/ops/paged_attention.h"

#include <cstdio>
#include <cstring>
#include <vector>

using namespace kuiper;  // NOLINT(google-build-using-namespace): an example

template <typename T>
Buffer ToDevice(ComputeDevice& memory, std::vector<T> host) {
  const auto n = static_cast<int64_t>(host.size());
  Buffer device = memory.Allocate(host.size() * sizeof(T)).value();
  memory.Upload(device.As(DTypeOf<T>::value, {n}),
                Tensor::Dense(host.data(), DTypeOf<T>::value, {n}));
  memory.Sync();  // host goes away
  return device;
}

constexpr int kHeads = 4, kKvHeads = 2, kHeadSize = 64, kPageSize = 16, kPages = 8, kPrompt = 20;

Status Example(Device device, std::vector<float>* result) {
  PagedAttentionLimits limits;
  limits.max_seqs = 1;
  limits.max_heads = kHeads;
  limits.max_head_size = kHeadSize;
  limits.max_kv_len = kPages * kPageSize;
  KU_ASSIGN_OR_RETURN(PagedAttention attention, PagedAttention::Create(device, limits));
  ComputeDevice& memory = attention.device();

  // The cache: keys [num_pages, page_size, kv_heads, head_size], and values likewise.
  const std::vector<float> empty(kPages * kPageSize * kKvHeads * kHeadSize);
  const Buffer k_cache = ToDevice(memory, empty), v_cache = ToDevice(memory, empty);
  const PagedKv kv = PagedKv::TokenMajor(k_cache.data(), v_cache.data(), DType::kF32, kPages,
                                         kPageSize, kKvHeads, kHeadSize);

  // The sequence lies in pages 5 and 2. Its keys are 0, the value of token n is n.
  const std::vector<int32_t> pages = {5, 2};
  const Buffer block_table = ToDevice(memory, pages);
  result->resize((kPrompt + 1) * kHeads * kHeadSize);
  const Buffer out = ToDevice(memory, *result), q = ToDevice(memory, *result);
  // Tokens [begin, end) of the sequence.
  const auto step = [&](int begin, int end) -> Status {
    std::vector<int32_t> slots;
    std::vector<float> values;
    for (int n = begin; n < end; ++n) {
      slots.push_back(pages[n / kPageSize] * kPageSize + n % kPageSize);
      values.insert(values.end(), kKvHeads * kHeadSize, static_cast<float>(n));
    }
    const Buffer k = ToDevice(memory, std::vector<float>(values.size())),
                 v = ToDevice(memory, values);
    const Buffer device_slots = ToDevice(memory, slots);
    PagedStoreArgs store;
    store.kv = kv;
    store.k = k.data();
    store.v = v.data();
    store.dtype = DType::kF32;
    store.num_tokens = end - begin;
    store.slots = static_cast<const int32_t*>(device_slots.data());
    KU_RETURN_IF_ERROR(attention.StoreKv(store));

    const Buffer cu_seqlens = ToDevice(memory, std::vector<int32_t>{0, end - begin});
    const Buffer kv_lens = ToDevice(memory, std::vector<int32_t>{end});
    PagedAttentionArgs run;
    run.kv = kv;
    run.q = q.data();
    run.out = static_cast<float*>(out.data()) + begin * kHeads * kHeadSize;
    run.dtype = DType::kF32;
    run.num_tokens = end - begin;
    run.num_heads = kHeads;
    run.num_seqs = 1;
    run.cu_seqlens_q = static_cast<const int32_t*>(cu_seqlens.data());
    run.kv_lens = static_cast<const int32_t*>(kv_lens.data());
    run.block_tables = static_cast<const int32_t*>(block_table.data());
    run.block_table_stride = static_cast<int>(pages.size());
    run.max_q_len = end - begin;
    run.max_kv_len = end;
    KU_RETURN_IF_ERROR(attention.Run(run));
    return attention.Sync();  // the step's arrays go away
  };
  KU_RETURN_IF_ERROR(step(0, kPrompt));
  KU_RETURN_IF_ERROR(step(kPrompt, kPrompt + 1));
  const auto n = static_cast<int64_t>(result->size());
  memory.Download(Tensor::Dense(result->data(), DType::kF32, {n}), out.As(DType::kF32, {n}));
  memory.Sync();
  return OkStatus();
}

int main(int argc, char** argv) {
  Device device;
  if (argc > 1 && std::strcmp(argv[1], "simt") == 0) device.type = DeviceType::kSimt;
  if (argc > 1 && std::strcmp(argv[1], "cuda") == 0) device.type = DeviceType::kCUDA;
  std::vector<float> result;
  const Status status = Example(device, &result);
  if (!status.ok()) {
    std::fprintf(stderr, "error: %s\n", status.message().c_str());
    return 1;
  }
  for (const int n : {0, kPrompt - 1, kPrompt}) {
    std::printf("token %d: %g\n", n, result[n * kHeads * kHeadSize]);
  }
  return 0;
}

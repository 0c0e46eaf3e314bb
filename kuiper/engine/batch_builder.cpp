#include "kuiper/engine/batch_builder.h"

#include <algorithm>

#include "kuiper/engine/shared_pages.h"

namespace kuiper {
namespace {

// Offsets of the arrays in the arenas, in i32 elements.
struct ArenaLayout {
  int64_t cu_seqlens, kv_lens, shared_lens, output_rows, token_ids, positions, slots, copies, size;

  explicit ArenaLayout(const BatchBuilder::Limits& l) {
    int64_t at = 0;
    auto take = [&at](int64_t n) {
      const int64_t begin = at;
      at += (n + 15) / 16 * 16;  // 64-byte aligned arrays
      return begin;
    };
    cu_seqlens = take(l.max_seqs + 1);
    kv_lens = take(l.max_seqs);
    shared_lens = take(l.max_seqs);
    output_rows = take(l.max_outputs);
    token_ids = take(l.max_tokens);
    positions = take(l.max_tokens);
    slots = take(l.max_tokens);
    copies = take(int64_t{3} * l.max_seqs);
    size = at;
  }
};

constexpr int32_t kNullPage = 0;

}  // namespace

StatusOr<std::unique_ptr<BatchBuilder>> BatchBuilder::Create(Ops& ops, const Limits& limits) {
  std::unique_ptr<BatchBuilder> builder(new BatchBuilder(ops, limits));
  const size_t arena_bytes = ArenaLayout(limits).size * sizeof(int32_t);
  const size_t table_entries = size_t{1} * limits.max_seqs * limits.max_pages;
  const size_t table_bytes = table_entries * sizeof(int32_t);
  for (Buffer& host : builder->host_) {
    KU_ASSIGN_OR_RETURN(host, ops.AllocatePinned(arena_bytes + table_bytes));
  }
  KU_ASSIGN_OR_RETURN(builder->device_, ops.Allocate(arena_bytes));
  KU_ASSIGN_OR_RETURN(builder->device_tables_, ops.Allocate(table_bytes));
  builder->last_tables_.resize(table_entries);
  builder->table_lengths_.assign(limits.max_seqs, 0);
  return builder;
}

MemorySize BatchBuilder::SizeOf(const Limits& limits) {
  const size_t arena_bytes = ArenaLayout(limits).size * sizeof(int32_t);
  const size_t table_bytes = sizeof(int32_t) * limits.max_seqs * limits.max_pages;
  return {.device = arena_bytes + table_bytes,
          .host = kMaxStepsInFlight * (arena_bytes + table_bytes) + table_bytes};
}

void BatchBuilder::SetTableRow(int slot, int row, const std::vector<int32_t>& pages) {
  int32_t* known = last_tables_.data() + int64_t{row} * limits_.max_pages;
  const int count = static_cast<int>(pages.size());
  KU_CHECK(count <= limits_.max_pages);
  int begin = 0;  // first entry the device does not have yet
  const int valid = std::min(table_lengths_[row], count);
  while (begin < valid && known[begin] == pages[begin]) ++begin;
  if (begin == count) return;
  std::copy(pages.begin() + begin, pages.end(), known + begin);
  table_lengths_[row] = count;
  const size_t offset = (int64_t{row} * limits_.max_pages + begin) * sizeof(int32_t);
  const size_t arena_bytes = ArenaLayout(limits_).size * sizeof(int32_t);
  const Tensor staged = host_[slot].As(DType::kI32, {count - begin}, arena_bytes + offset);
  std::copy(pages.begin() + begin, pages.end(), staged.ptr<int32_t>());
  ops_.Upload(device_tables_.As(DType::kI32, {count - begin}, offset), staged);
  table_entries_uploaded_ += count - begin;
}

Batch BatchBuilder::Build(const StepPlan& plan, int pad_to_seqs, int slot) {
  const ArenaLayout at(limits_);
  int32_t* host = static_cast<int32_t*>(host_[slot].data());
  int tokens = 0, seqs = 0, outputs = 0, decode_rows = 0, max_q_len = 1;
  host[at.cu_seqlens] = 0;
  auto add_token = [&](int32_t id, int32_t position, int32_t slot) {
    host[at.token_ids + tokens] = id;
    host[at.positions + tokens] = position;
    host[at.slots + tokens] = slot;
    ++tokens;
  };
  auto end_sequence = [&](int kv_len, int shared_len) {
    host[at.kv_lens + seqs] = kv_len;
    host[at.shared_lens + seqs] = shared_len;
    host[at.cu_seqlens + ++seqs] = tokens;
  };
  for (const StepPlan::Entry& entry : plan.entries) {
    const Sequence& seq = *entry.seq;
    KU_CHECK(tokens + entry.num_tokens <= limits_.max_tokens && seqs < limits_.max_seqs);
    for (int i = 0; i < entry.num_tokens; ++i) {
      const int pos = entry.begin + i;
      const int64_t kv_slot = int64_t{seq.pages.at(pos / limits_.page_size)} * limits_.page_size +
                              pos % limits_.page_size;
      if (entry.all_rows) host[at.output_rows + outputs++] = tokens;
      const bool pending = seq.tokens[pos] == kPendingToken;
      KU_CHECK(!pending || seq.sampled_row >= 0, "the token is neither known nor sampled");
      add_token(pending ? -1 - seq.sampled_row : seq.tokens[pos], pos,
                static_cast<int32_t>(kv_slot));
    }
    if (entry.samples && !entry.all_rows) host[at.output_rows + outputs++] = tokens - 1;
    max_q_len = std::max(max_q_len, entry.num_tokens);
    if (entry.decodes) {
      decode_rows += entry.num_tokens;
      KU_CHECK(decode_rows == tokens, "decodes come first");
    }
    SetTableRow(slot, seqs, seq.pages);
    const bool shares = limits_.cascade && seqs > 0;
    end_sequence(entry.end(),
                 shares ? SharedTokens(plan.entries[seqs - 1], entry, limits_.page_size) : 0);
  }
  while (seqs < pad_to_seqs) {
    SetTableRow(slot, seqs, {kNullPage});
    host[at.output_rows + outputs++] = tokens;
    add_token(0, 0, kNullPage);
    end_sequence(1, 0);
  }
  KU_CHECK(outputs <= limits_.max_outputs);
  const int num_copies = static_cast<int>(plan.copies.size());
  KU_CHECK(num_copies <= limits_.max_seqs);
  for (int i = 0; i < num_copies; ++i) {
    const StepPlan::PageCopy& copy = plan.copies[i];
    const int32_t values[] = {copy.from, copy.to, copy.num_tokens};
    std::copy_n(values, 3, host + at.copies + 3 * i);
  }
  ops_.Upload(device_.As(DType::kI32, {at.size}), host_[slot].As(DType::kI32, {at.size}));

  auto array = [&](int64_t begin, int count) {
    return device_.As(DType::kI32, {count}, begin * sizeof(int32_t));
  };
  Batch batch;
  batch.num_tokens = tokens;
  batch.num_seqs = seqs;
  batch.num_outputs = outputs;
  batch.num_decode_rows = plan.decode_only ? tokens : decode_rows;
  batch.token_ids = array(at.token_ids, tokens);
  batch.positions = device_.As(DType::kI32, {1, tokens}, at.positions * sizeof(int32_t));
  batch.slots = array(at.slots, tokens);
  batch.block_tables = device_tables_.As(DType::kI32, {limits_.max_seqs, limits_.max_pages});
  batch.block_tables = batch.block_tables.Rows(0, seqs);
  batch.attn.cu_seqlens_q = array(at.cu_seqlens, seqs + 1);
  batch.attn.kv_lens = array(at.kv_lens, seqs);
  if (limits_.cascade && seqs > 1) batch.attn.shared_lens = array(at.shared_lens, seqs);
  batch.attn.num_seqs = seqs;
  batch.attn.max_q_len = max_q_len;
  batch.attn.max_kv_len = limits_.max_kv_len;
  batch.output_rows = array(at.output_rows, outputs);
  batch.copies = device_.As(DType::kI32, {num_copies, 3}, at.copies * sizeof(int32_t));
  return batch;
}

}  // namespace kuiper

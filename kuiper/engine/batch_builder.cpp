#include "kuiper/engine/batch_builder.h"

#include <algorithm>
#include <bit>
#include <string>
#include <unordered_set>
#include <utility>

#include "kuiper/engine/shared_pages.h"

namespace kuiper {
namespace {

constexpr int32_t kNullPage = 0;

}  // namespace

// Offsets of the arrays in the arenas, in i32 elements. Arrays with an element per token come last,
// one directly after the other, so that a step uploads no more than it fills. Steps with equally
// many tokens have the same addresses.
struct BatchBuilder::Layout {
  int64_t cu_seqlens, kv_lens, shared_lens, output_rows, last_rows, one_row_each, last_outputs;
  int64_t copies, token_ids, positions, slots, size;

  Layout(const Limits& l, int num_tokens) {
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
    last_rows = take(l.max_seqs);
    one_row_each = take(l.max_seqs + 1);
    last_outputs = take(l.max_outputs);
    copies = take(int64_t{3} * l.max_seqs);
    token_ids = take(num_tokens);
    positions = take(int64_t{l.num_axes} * num_tokens);
    slots = take(num_tokens);
    size = at;
  }
  static size_t MaxBytes(const Limits& l) { return Layout(l, l.max_tokens).size * sizeof(int32_t); }
};

StatusOr<std::unique_ptr<BatchBuilder>> BatchBuilder::Create(ComputeDevice& device,
                                                             const Limits& limits) {
  std::unique_ptr<BatchBuilder> builder(new BatchBuilder(device, limits));
  const size_t arena_bytes = Layout::MaxBytes(limits);
  const size_t table_entries = size_t{1} * limits.max_seqs * limits.max_pages;
  const size_t table_bytes = table_entries * sizeof(int32_t);
  for (Buffer& host : builder->host_) {
    KU_ASSIGN_OR_RETURN(host, device.AllocatePinned(arena_bytes + table_bytes));
  }
  KU_ASSIGN_OR_RETURN(builder->arrays_, device.Allocate(arena_bytes));
  KU_ASSIGN_OR_RETURN(builder->device_tables_, device.Allocate(table_bytes));
  builder->last_tables_.resize(table_entries);
  builder->rows_.resize(limits.max_seqs);
  builder->Change(&builder->null_table_, 0, {&kNullPage, 1});
  return builder;
}

MemorySize BatchBuilder::SizeOf(const Limits& limits) {
  const size_t arena_bytes = Layout::MaxBytes(limits);
  const size_t table_bytes = sizeof(int32_t) * limits.max_seqs * limits.max_pages;
  return {.device = arena_bytes + table_bytes,
          .host = kMaxStepsInFlight * (arena_bytes + table_bytes) + table_bytes};
}

void BatchBuilder::SetTableRow(int flight, int row, const Table& table) {
  Row& known = rows_[row];
  int begin = table.NumPagesSince(known.version);  // first entry that the device may lack
  known.version = table.version;
  const int count = table.num_pages();
  if (begin == count) return;
  KU_CHECK(count <= limits_.max_pages);
  const int32_t* pages = table.pages.data();
  int32_t* entries = last_tables_.data() + int64_t{row} * limits_.max_pages;
  const int valid = std::min(known.num_entries, count);
  while (begin < valid && entries[begin] == pages[begin]) ++begin;
  if (begin == count) return;
  std::copy(pages + begin, pages + count, entries + begin);
  known.num_entries = count;
  const size_t offset = (int64_t{row} * limits_.max_pages + begin) * sizeof(int32_t);
  const Tensor staged =
      host_[flight].As(DType::kI32, {count - begin}, Layout::MaxBytes(limits_) + offset);
  std::copy(pages + begin, pages + count, staged.ptr<int32_t>());
  device_.Upload(device_tables_.As(DType::kI32, {count - begin}, offset), staged);
  table_entries_uploaded_ += count - begin;
}

Status BatchBuilder::CheckTables(const StepPlan& plan) const {
  const auto bad = [](const char* what) {
    return Status(StatusCode::kInvalidArgument, std::string("step plan: ") + what);
  };
  std::unordered_set<int64_t> seen(plan.ended.begin(), plan.ended.end());
  for (const StepPlan::Entry& entry : plan.entries) {
    if (!seen.insert(entry.sequence).second) return bad("a sequence is there twice, or ended");
    const auto known = tables_.find(entry.sequence);
    const size_t num_known = known == tables_.end() ? 0 : known->second.pages.size();
    const int64_t num_pages = int64_t{entry.num_kept_pages} + entry.pages.size();
    if (static_cast<size_t>(entry.num_kept_pages) > num_known || num_pages > limits_.max_pages ||
        num_pages * limits_.page_size < entry.end()) {
      return bad("a page table does not cover its tokens");
    }
  }
  return OkStatus();
}

void BatchBuilder::ForgetTables() {
  tables_.clear();
  ForgetRows();
}

void BatchBuilder::ForgetRows() {
  for (Row& row : rows_) row.table = nullptr;
}

BatchBuilder::Table& BatchBuilder::TableOf(int row, int64_t sequence) {
  Row& known = rows_[row];
  if (known.table == nullptr || known.sequence != sequence) {
    known.sequence = sequence;
    known.table = &tables_[sequence];
  }
  return *known.table;
}

void BatchBuilder::Change(Table* table, int num_kept, std::span<const int32_t> pages) {
  KU_CHECK(num_kept <= table->num_pages(), "a plan keeps pages that were never sent");
  if (num_kept == table->num_pages() && pages.empty()) return;
  table->pages.resize(num_kept);
  table->pages.insert(table->pages.end(), pages.begin(), pages.end());
  table->last_version = std::exchange(table->version, ++num_versions_);
  table->num_kept = num_kept;
}

// True if only the last row of each sequence needs logits and skipping the others pays. Then the
// last layer has two rows per sequence in the working memory of all rows. It has one row per
// sequence in the memory of logits rows, which later holds the rows of all outputs.
bool BatchBuilder::NeedsLastRowsOnly(const StepPlan& plan) const {
  const auto is_last_only = [&](const StepPlan::Entry& entry) {
    const int last = entry.num_tokens() - 1;
    const auto samples = Part(plan.samples, entry.samples);
    const auto logits_rows = Part(plan.logits_rows, entry.logits_rows);
    return std::all_of(samples.begin(), samples.end(),
                       [&](const StepPlan::Sample& sample) { return sample.row == last; }) &&
           std::all_of(logits_rows.begin(), logits_rows.end(),
                       [&](int32_t row) { return row == last; });
  };
  const int num_seqs = static_cast<int>(plan.entries.size());
  const auto num_outputs = static_cast<int>(plan.samples.size() + plan.logits_rows.size());
  return 2 * num_seqs <= plan.num_tokens() && num_seqs <= limits_.max_outputs &&
         num_outputs <= plan.num_tokens() &&
         std::all_of(plan.entries.begin(), plan.entries.end(), is_last_only);
}

// Tokens that the sequence of this row shares with the previous row's.
int BatchBuilder::CountSharedTokens(const StepPlan& plan, int seq) {
  if (!limits_.cascade || seq == 0) return 0;
  // Shared tokens are read once only for sequences with one row each.
  const StepPlan::Entry &before = plan.entries[seq - 1], &entry = plan.entries[seq];
  if (before.num_tokens() != 1 || entry.num_tokens() != 1) return 0;
  Row& row = rows_[seq];
  const Table &table = *row.table, &table_before = *rows_[seq - 1].table;
  if (row.counted != table.version || row.counted_before != table_before.version) {
    const int known = std::min({row.num_equal_pages, table.NumPagesSince(row.counted),
                                table_before.NumPagesSince(row.counted_before)});
    row.num_equal_pages = NumEqualPages(table_before.pages, table.pages, known);
    row.counted = table.version;
    row.counted_before = table_before.version;
  }
  return SharedTokens(row.num_equal_pages * limits_.page_size, before.begin, entry.begin);
}

void BatchBuilder::FillEntries(const StepPlan& plan, const Layout& at, int flight) {
  int32_t* host = static_cast<int32_t*>(host_[flight].data());
  const int num_samples = static_cast<int>(plan.samples.size());
  host[at.cu_seqlens] = 0;
  int seq = 0;
  for (const StepPlan::Entry& entry : plan.entries) {
    Table& table = TableOf(seq, entry.sequence);
    Change(&table, entry.num_kept_pages, Part(plan.pages, entry.pages));
    const int first_row = entry.tokens.begin;
    for (int row = first_row; row < entry.tokens.end; ++row) {
      const int pos = entry.begin + row - first_row;
      const int64_t page = table.pages.at(pos / limits_.page_size);
      host[at.token_ids + row] = std::bit_cast<int32_t>(plan.tokens[row]);
      host[at.slots + row] =
          static_cast<int32_t>(page * limits_.page_size + pos % limits_.page_size);
    }
    for (int i = entry.samples.begin; i < entry.samples.end; ++i) {
      host[at.output_rows + i] = first_row + plan.samples[i].row;
      host[at.last_outputs + i] = seq;
    }
    for (int i = entry.logits_rows.begin; i < entry.logits_rows.end; ++i) {
      host[at.output_rows + num_samples + i] = first_row + plan.logits_rows[i];
      host[at.last_outputs + num_samples + i] = seq;
    }
    host[at.last_rows + seq] = entry.tokens.end - 1;
    host[at.one_row_each + seq] = seq;
    SetTableRow(flight, seq, table);
    host[at.kv_lens + seq] = entry.end();
    host[at.shared_lens + seq] = CountSharedTokens(plan, seq);
    host[at.cu_seqlens + ++seq] = entry.tokens.end;
  }
  host[at.one_row_each + seq] = seq;
  for (size_t i = 0; i < plan.copies.size(); ++i) {
    const StepPlan::PageCopy& copy = plan.copies[i];
    const int32_t values[] = {copy.from, copy.to, copy.num_tokens};
    std::copy_n(values, 3, host + at.copies + 3 * i);
  }
}

Batch BatchBuilder::Build(const StepPlan& plan, int pad_to_seqs, int flight) {
  const int num_seqs = static_cast<int>(plan.entries.size());
  const int num_padded = std::max(0, pad_to_seqs - num_seqs);
  const int num_tokens = plan.num_tokens() + num_padded;
  const int num_outputs =
      static_cast<int>(plan.samples.size() + plan.logits_rows.size()) + num_padded;
  const int num_copies = static_cast<int>(plan.copies.size());
  KU_CHECK(num_tokens <= limits_.max_tokens && num_seqs + num_padded <= limits_.max_seqs &&
           num_outputs <= limits_.max_outputs && num_copies <= limits_.max_seqs &&
           plan.num_axes <= limits_.num_axes);
  const Layout at(limits_, num_tokens);
  for (const int64_t sequence : plan.ended) tables_.erase(sequence);
  if (!plan.ended.empty()) ForgetRows();
  FillEntries(plan, at, flight);

  int32_t* host = static_cast<int32_t*>(host_[flight].data());
  for (int i = 0; i < num_padded; ++i) {
    const int row = plan.num_tokens() + i, seq = num_seqs + i;
    SetTableRow(flight, seq, null_table_);
    host[at.token_ids + row] = std::bit_cast<int32_t>(TokenRef::Known(0));
    host[at.slots + row] = kNullPage;
    host[at.output_rows + num_outputs - num_padded + i] = row;
    host[at.kv_lens + seq] = 1;
    host[at.shared_lens + seq] = 0;
    host[at.cu_seqlens + seq + 1] = row + 1;
  }
  for (int64_t axis = 0; axis < plan.num_axes; ++axis) {
    int32_t* positions = host + at.positions + axis * num_tokens;
    std::copy_n(plan.positions.begin() + axis * plan.num_tokens(), plan.num_tokens(), positions);
    std::fill_n(positions + plan.num_tokens(), num_padded, 0);
  }
  device_.Upload(arrays_.As(DType::kI32, {at.size}), host_[flight].As(DType::kI32, {at.size}));

  Batch batch;
  batch.num_tokens = num_tokens;
  batch.num_seqs = num_seqs + num_padded;
  batch.num_outputs = num_outputs;
  batch.num_decode_rows = num_padded + plan.num_decode_tokens();
  for (const StepPlan::Entry& entry : plan.entries) {
    batch.attn.max_q_len = std::max(batch.attn.max_q_len, entry.num_tokens());
  }
  batch.attn.appends = batch.attn.max_q_len == 1 && num_copies == 0;
  PointToArrays(at, plan.num_axes, num_copies, &batch);
  if (NeedsLastRowsOnly(plan)) PointToLastRows(at, &batch);
  return batch;
}

Tensor BatchBuilder::Array(int64_t begin, int count) const {
  return arrays_.As(DType::kI32, {count}, begin * sizeof(int32_t));
}

// Sets the tensors of a batch whose counts are set.
void BatchBuilder::PointToArrays(const Layout& at, int num_axes, int num_copies,
                                 Batch* batch) const {
  const int seqs = batch->num_seqs;
  batch->token_ids = Array(at.token_ids, batch->num_tokens);
  batch->positions =
      arrays_.As(DType::kI32, {num_axes, batch->num_tokens}, at.positions * sizeof(int32_t));
  batch->slots = Array(at.slots, batch->num_tokens);
  batch->block_tables =
      device_tables_.As(DType::kI32, {limits_.max_seqs, limits_.max_pages}).Rows(0, seqs);
  batch->attn.cu_seqlens_q = Array(at.cu_seqlens, seqs + 1);
  batch->attn.kv_lens = Array(at.kv_lens, seqs);
  if (limits_.cascade && seqs > 1) batch->attn.shared_lens = Array(at.shared_lens, seqs);
  batch->attn.num_seqs = seqs;
  batch->attn.max_kv_len = limits_.max_kv_len;
  batch->output_rows = Array(at.output_rows, batch->num_outputs);
  batch->copies = arrays_.As(DType::kI32, {num_copies, 3}, at.copies * sizeof(int32_t));
}

void BatchBuilder::PointToLastRows(const Layout& at, Batch* batch) const {
  batch->last_rows = Array(at.last_rows, batch->num_seqs);
  batch->last_outputs = Array(at.last_outputs, batch->num_outputs);
  batch->last_attn = batch->attn;
  batch->last_attn.cu_seqlens_q = Array(at.one_row_each, batch->num_seqs + 1);
  batch->last_attn.max_q_len = 1;
}

}  // namespace kuiper

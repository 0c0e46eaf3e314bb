#include "kuiper/io/bpe_model.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "kuiper/io/byte_tokens.h"
#include "kuiper/io/utf8.h"

namespace kuiper {
namespace {

// With more symbols than this, the quadratic loop is slower than the heap.
constexpr size_t kShortWord = 64;

// Look-ups whose memory accesses overlap.
constexpr size_t kOverlappedLookUps = 32;

uint64_t HashBytes(std::string_view bytes) {
  uint64_t hash = bytes.size() * 0x9E3779B97F4A7C15ull;
  for (; bytes.size() >= 8; bytes.remove_prefix(8)) {
    uint64_t word;
    std::memcpy(&word, bytes.data(), 8);
    hash = std::rotl(hash ^ word, 29) * 0xBF58476D1CE4E5B9ull;
  }
  uint64_t tail = 0;
  if (!bytes.empty()) std::memcpy(&tail, bytes.data(), bytes.size());
  hash = (hash ^ tail) * 0x94D049BB133111EBull;
  return hash ^ hash >> 32;
}

Status BadTokenizer(const std::string& name, const std::string& what) {
  return Status(StatusCode::kTokenizer, name + ": " + what);
}

}  // namespace

std::optional<int32_t> TokenIndex::Build(const std::vector<std::string>* contents,
                                         size_t num_tokens) {
  contents_ = contents;
  buckets_.assign(std::bit_ceil(num_tokens * 2 + 1), -1);
  std::array<uint64_t, kOverlappedLookUps> hashes;
  for (size_t begin = 0; begin < contents->size(); begin += kOverlappedLookUps) {
    const size_t count = std::min(kOverlappedLookUps, contents->size() - begin);
    for (size_t i = 0; i < count; ++i) {
      hashes[i] = HashBytes((*contents)[begin + i]);
      __builtin_prefetch(&buckets_[FirstBucket(hashes[i])], 1);
    }
    for (size_t i = 0; i < count; ++i) {
      const std::string& content = (*contents)[begin + i];
      if (content.empty()) continue;
      int32_t& bucket = buckets_[Bucket(content, hashes[i])];
      if (bucket >= 0) return static_cast<int32_t>(begin + i);
      bucket = static_cast<int32_t>(begin + i);
    }
  }
  return std::nullopt;
}

size_t TokenIndex::Bucket(std::string_view content, uint64_t hash) const {
  size_t bucket = FirstBucket(hash);
  while (buckets_[bucket] >= 0 && (*contents_)[buckets_[bucket]] != content) {
    bucket = (bucket + 1) & (buckets_.size() - 1);
  }
  return bucket;
}

std::optional<int32_t> TokenIndex::Find(std::string_view content) const {
  const int32_t id = buckets_[Bucket(content, HashBytes(content))];
  return id < 0 ? std::nullopt : std::optional<int32_t>(id);
}

void TokenIndex::FindAll(std::span<const std::string_view> contents, std::span<int32_t> ids) const {
  std::array<uint64_t, kOverlappedLookUps> hashes;
  for (size_t begin = 0; begin < contents.size(); begin += kOverlappedLookUps) {
    const auto part =
        contents.subspan(begin, std::min(kOverlappedLookUps, contents.size() - begin));
    for (size_t i = 0; i < part.size(); ++i) {
      hashes[i] = HashBytes(part[i]);
      __builtin_prefetch(&buckets_[FirstBucket(hashes[i])]);
    }
    for (size_t i = 0; i < part.size(); ++i) {
      const int32_t id = buckets_[FirstBucket(hashes[i])];
      if (id >= 0) __builtin_prefetch(&(*contents_)[id]);
    }
    for (size_t i = 0; i < part.size(); ++i) {
      ids[begin + i] = buckets_[Bucket(part[i], hashes[i])];
    }
  }
}

void MergeTable::Reserve(size_t num_merges) {
  const size_t buckets = std::bit_ceil(num_merges * 2 + 2);
  entries_.assign(buckets, Entry());
  shift_ = 64 - std::countr_zero(buckets);
  const size_t filter_bits = std::bit_ceil(num_merges * 8 + 64);
  filter_.assign(filter_bits / 64, 0);
  filter_mask_ = filter_bits - 1;
}

bool MergeTable::Insert(int32_t left, int32_t right, Merge merge) {
  const uint64_t key = Key(left, right);
  const uint64_t hash = Hash(key);
  size_t bucket = hash >> shift_;
  while (entries_[bucket].key != kFree) {
    if (entries_[bucket].key == key) return false;
    bucket = (bucket + 1) & (entries_.size() - 1);
  }
  entries_[bucket] = {key, merge};
  const uint64_t bit = hash & filter_mask_;
  filter_[bit >> 6] |= uint64_t{1} << (bit & 63);
  return true;
}

StatusOr<std::unique_ptr<BpeModel>> BpeModel::Create(TokenizerSpec* spec, const std::string& name) {
  auto model = std::make_unique<BpeModel>();
  model->byte_level_ = spec->byte_level;
  model->byte_fallback_ = spec->byte_fallback;
  model->fuse_unk_ = spec->fuse_unk;
  model->ignore_merges_ = spec->ignore_merges;
  KU_RETURN_IF_ERROR(model->ReadVocab(spec, name));
  KU_RETURN_IF_ERROR(model->ReadMerges(*spec, name));
  KU_RETURN_IF_ERROR(model->ReadSymbols(*spec, name));
  spec->merges = {};
  return model;
}

Status BpeModel::ReadVocab(TokenizerSpec* spec, const std::string& name) {
  if (spec->vocab.empty()) return BadTokenizer(name, "model.vocab is empty");
  int64_t max_id = 0;
  for (const VocabEntry& entry : spec->vocab) {
    if (entry.id < 0 || entry.id > kMaxTokenId) {
      return BadTokenizer(name, "model.vocab: id of \"" + entry.content + "\" is out of range");
    }
    if (entry.content.empty()) return BadTokenizer(name, "model.vocab: empty token");
    max_id = std::max(max_id, entry.id);
  }
  contents_.resize(max_id + 1);
  for (VocabEntry& entry : spec->vocab) {
    std::string& content = contents_[entry.id];
    if (!content.empty()) {
      return BadTokenizer(name, "model.vocab: \"" + content + "\" and \"" + entry.content +
                                    "\" have the same id " + std::to_string(entry.id));
    }
    content = std::move(entry.content);
  }
  if (const auto twice = index_.Build(&contents_, spec->vocab.size())) {
    return BadTokenizer(name, "model.vocab: \"" + contents_[*twice] + "\" appears twice");
  }
  spec->vocab.clear();
  spec->vocab.shrink_to_fit();
  return OkStatus();
}

// Returns the id of the concatenated parts; checks the id `guess` first.
std::optional<int32_t> BpeModel::FindMerged(std::string_view left, std::string_view right,
                                            size_t guess) const {
  std::string_view content;
  if (guess < contents_.size()) content = contents_[guess];
  if (content.size() == left.size() + right.size() && content.starts_with(left) &&
      content.ends_with(right)) {
    return static_cast<int32_t>(guess);
  }
  return Find(std::string(left).append(right));
}

Status BpeModel::ReadMerges(const TokenizerSpec& spec, const std::string& name) {
  merges_.Reserve(spec.merges.size());
  const auto bad = [&](size_t rank, const std::string& what) {
    return BadTokenizer(name, "model.merges: entry " + std::to_string(rank) + what);
  };
  std::vector<std::string_view> parts;
  std::array<int32_t, 2 * kOverlappedLookUps> ids;
  size_t guess = 0;  // most vocabularies number merged tokens in the order of the merges
  for (size_t begin = 0; begin < spec.merges.size(); begin += kOverlappedLookUps) {
    const size_t end = std::min(begin + kOverlappedLookUps, spec.merges.size());
    parts.clear();
    for (size_t rank = begin; rank < end; ++rank) {
      parts.push_back(spec.merges.left(rank));
      parts.push_back(spec.merges.right(rank));
    }
    index_.FindAll(parts, ids);
    for (size_t i = 0; i < parts.size(); i += 2) merges_.Prefetch(ids[i], ids[i + 1]);
    for (size_t rank = begin; rank < end; ++rank) {
      const std::string_view left = spec.merges.left(rank), right = spec.merges.right(rank);
      const int32_t left_id = ids[2 * (rank - begin)], right_id = ids[2 * (rank - begin) + 1];
      const auto merged_id = FindMerged(left, right, guess);
      if (left_id < 0 || right_id < 0 || !merged_id) {
        std::string unknown(left_id < 0 ? left : right);
        if (left_id >= 0 && right_id >= 0) unknown.insert(0, left);
        return bad(rank, ": \"" + unknown + "\" is not in the vocabulary");
      }
      guess = static_cast<size_t>(*merged_id) + 1;
      if (!merges_.Insert(left_id, right_id, {static_cast<uint32_t>(rank), *merged_id})) {
        return bad(rank, " appears twice");
      }
    }
  }
  return OkStatus();
}

Status BpeModel::ReadSymbols(const TokenizerSpec& spec, const std::string& name) {
  if (spec.unk_token.has_value()) {
    unk_ = Find(*spec.unk_token);
    if (!unk_) {
      return BadTokenizer(name,
                          "model.unk_token \"" + *spec.unk_token + "\" is not in the vocabulary");
    }
  }
  byte_ids_.assign(256, -1);
  if (!byte_level_ && !byte_fallback_) return OkStatus();
  for (int i = 0; i < 256; ++i) {
    const uint8_t byte = static_cast<uint8_t>(i);
    std::string symbol;
    if (byte_level_) {
      AppendUtf8(ByteLevelChar(byte), &symbol);
    } else {
      symbol = ByteFallbackToken(byte);
    }
    byte_ids_[i] = Find(symbol).value_or(-1);
  }
  return OkStatus();
}

// As Hugging Face: a character without a token becomes its bytes if all of them have tokens, else
// the unknown token, else nothing.
void BpeModel::AppendSymbols(std::string_view word, std::vector<int32_t>* ids) const {
  bool after_unk = false;
  for (std::string_view rest = word; !rest.empty();) {
    const std::string_view symbol = rest.substr(0, byte_level_ ? 1 : NextUtf8(rest).num_bytes);
    rest.remove_prefix(symbol.size());
    const auto byte_id = [&](char c) { return byte_ids_[static_cast<uint8_t>(c)]; };
    const int32_t id = byte_level_ ? byte_id(symbol[0]) : Find(symbol).value_or(-1);
    if (id >= 0) {
      ids->push_back(id);
      after_unk = false;
    } else if (!byte_level_ && byte_fallback_ &&
               std::all_of(symbol.begin(), symbol.end(), [&](char c) { return byte_id(c) >= 0; })) {
      for (char c : symbol) ids->push_back(byte_id(c));
      after_unk = false;
    } else if (unk_) {
      if (!(fuse_unk_ && after_unk)) ids->push_back(*unk_);
      after_unk = true;
    }
  }
}

void BpeModel::Encode(std::string_view word, Scratch* scratch, std::vector<int32_t>* ids) const {
  if (ignore_merges_) {
    std::string_view spelled = word;
    if (byte_level_) {
      scratch->spelled.clear();
      for (char c : word) AppendUtf8(ByteLevelChar(static_cast<uint8_t>(c)), &scratch->spelled);
      spelled = scratch->spelled;
    }
    if (const auto id = Find(spelled)) {
      ids->push_back(*id);
      return;
    }
  }
  scratch->ids.clear();
  AppendSymbols(word, &scratch->ids);
  if (scratch->ids.size() <= kShortWord) {
    MergeShort(scratch, ids);
  } else {
    MergeLong(scratch, ids);
  }
}

// Applies the best merge until none is left; of equal ranks, the leftmost.
void BpeModel::MergeShort(Scratch* scratch, std::vector<int32_t>* out) const {
  std::vector<int32_t>& ids = scratch->ids;
  std::vector<MergeTable::Merge>& merges = scratch->merges;  // merges[i] joins ids[i] and ids[i+1]
  size_t count = ids.size();
  merges.resize(count);
  for (size_t i = 0; i + 1 < count; ++i) merges[i] = merges_.Find(ids[i], ids[i + 1]);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (merges[i].rank < merges[best].rank) best = i;
    }
    if (merges[best].rank == MergeTable::kNoRank) break;
    ids[best] = merges[best].id;
    std::copy(ids.begin() + best + 2, ids.begin() + count, ids.begin() + best + 1);
    std::copy(merges.begin() + best + 2, merges.begin() + count, merges.begin() + best + 1);
    --count;
    if (best > 0) merges[best - 1] = merges_.Find(ids[best - 1], ids[best]);
    if (best + 1 < count) merges[best] = merges_.Find(ids[best], ids[best + 1]);
  }
  out->insert(out->end(), ids.begin(), ids.begin() + count);
}

// Merges in the same order with a heap of candidates over a linked list: O(n log n).
void BpeModel::MergeLong(Scratch* scratch, std::vector<int32_t>* out) const {
  auto& symbols = scratch->symbols;
  auto& heap = scratch->heap;
  const int32_t count = static_cast<int32_t>(scratch->ids.size());
  symbols.resize(count);
  heap.clear();
  const auto later = [](const Scratch::Candidate& a, const Scratch::Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.pos > b.pos;
  };
  const auto add = [&](int32_t pos) {
    const int32_t left = symbols[pos].id, right = symbols[symbols[pos].next].id;
    const MergeTable::Merge merge = merges_.Find(left, right);
    if (merge.rank == MergeTable::kNoRank) return false;
    heap.push_back({merge.rank, pos, left, right});
    return true;
  };
  for (int32_t i = 0; i < count; ++i) {
    symbols[i] = {scratch->ids[i], i - 1, i + 1 < count ? i + 1 : -1};
  }
  for (int32_t i = 0; i + 1 < count; ++i) add(i);
  std::make_heap(heap.begin(), heap.end(), later);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const Scratch::Candidate best = heap.back();
    heap.pop_back();
    auto& left = symbols[best.pos];
    // A symbol merged into its left neighbour has id -1.
    if (left.id != best.left || left.next < 0 || symbols[left.next].id != best.right) continue;
    auto& right = symbols[left.next];
    left.id = merges_.Find(best.left, best.right).id;
    right.id = -1;
    left.next = right.next;
    if (left.next >= 0) symbols[left.next].prev = best.pos;
    if (left.next >= 0 && add(best.pos)) std::push_heap(heap.begin(), heap.end(), later);
    if (left.prev >= 0 && add(left.prev)) std::push_heap(heap.begin(), heap.end(), later);
  }
  for (int32_t i = 0; i >= 0 && i < count; i = symbols[i].next) out->push_back(symbols[i].id);
}

}  // namespace kuiper

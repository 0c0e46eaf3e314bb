// Byte-pair encoding of one pre-token: symbols, merged by rank, become ids. Independent of regular
// expressions, normalisation and added tokens (bpe_tokenizer.cpp).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kuiper/base/status.h"
#include "kuiper/io/tokenizer_spec.h"

namespace kuiper {

// Maps token content to id. Open addressing over the contents, which it does not own.
class TokenIndex {
 public:
  // `contents[id]` is "" for ids without a token; it must outlive the index and not move. Returns
  // an id whose content another id has too, if there is one.
  std::optional<int32_t> Build(const std::vector<std::string>* contents, size_t num_tokens);
  std::optional<int32_t> Find(std::string_view content) const;
  // Finds all contents; -1 marks contents without a token. The memory accesses of the look-ups
  // overlap.
  void FindAll(std::span<const std::string_view> contents, std::span<int32_t> ids) const;

 private:
  size_t Bucket(std::string_view content, uint64_t hash) const;
  size_t FirstBucket(uint64_t hash) const { return hash & (buckets_.size() - 1); }

  const std::vector<std::string>* contents_ = nullptr;
  std::vector<int32_t> buckets_;  // -1: free
};

// Maps (left, right) to (rank, merged). Open addressing, after a small bit filter: most look-ups
// find nothing, and the table is larger than a second-level cache.
class MergeTable {
 public:
  static constexpr uint32_t kNoRank = UINT32_MAX;
  struct Merge {
    uint32_t rank = kNoRank;
    int32_t id = -1;
  };

  void Reserve(size_t num_merges);
  // Returns false if the pair is already present.
  bool Insert(int32_t left, int32_t right, Merge merge);
  // Prefetches the entry for a later Insert of this pair.
  void Prefetch(int32_t left, int32_t right) const {
    __builtin_prefetch(&entries_[Hash(Key(left, right)) >> shift_], 1);
  }
  Merge Find(int32_t left, int32_t right) const {
    const uint64_t key = Key(left, right);
    const uint64_t hash = Hash(key);
    const uint64_t bit = hash & filter_mask_;
    if ((filter_[bit >> 6] >> (bit & 63) & 1) == 0) return {};
    for (size_t bucket = hash >> shift_;; bucket = (bucket + 1) & (entries_.size() - 1)) {
      if (entries_[bucket].key == key) return entries_[bucket].merge;
      if (entries_[bucket].key == kFree) return {};
    }
  }

 private:
  static constexpr uint64_t kFree = UINT64_MAX;
  struct Entry {
    uint64_t key = kFree;
    Merge merge;
  };
  static uint64_t Key(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  static uint64_t Hash(uint64_t key) {
    key *= 0x9E3779B97F4A7C15ull;
    return (key ^ key >> 29) * 0xBF58476D1CE4E5B9ull;
  }

  std::vector<Entry> entries_;
  std::vector<uint64_t> filter_;
  uint64_t filter_mask_ = 0;
  int shift_ = 63;
};

class BpeModel {
 public:
  // Working memory of Encode; one per thread.
  struct Scratch {
    struct Symbol {
      int32_t id, prev, next;
    };
    struct Candidate {
      uint32_t rank;
      int32_t pos;
      int32_t left, right;  // ids when it was found; stale if they have changed
    };
    std::vector<int32_t> ids;
    std::vector<MergeTable::Merge> merges;
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
    std::string spelled;
  };

  // Takes vocab and merges out of `spec`.
  static StatusOr<std::unique_ptr<BpeModel>> Create(TokenizerSpec* spec, const std::string& name);

  // Appends the ids of `word`, which is bytes if the vocabulary is byte level, else UTF-8.
  void Encode(std::string_view word, Scratch* scratch, std::vector<int32_t>* ids) const;

  std::optional<int32_t> Find(std::string_view content) const { return index_.Find(content); }
  // Content by id as the file spells it; "" for ids without a token.
  const std::vector<std::string>& contents() const { return contents_; }

 private:
  Status ReadVocab(TokenizerSpec* spec, const std::string& name);
  Status ReadMerges(const TokenizerSpec& spec, const std::string& name);
  std::optional<int32_t> FindMerged(std::string_view left, std::string_view right,
                                    size_t guess) const;
  Status ReadSymbols(const TokenizerSpec& spec, const std::string& name);
  void AppendSymbols(std::string_view word, std::vector<int32_t>* ids) const;
  void MergeShort(Scratch* scratch, std::vector<int32_t>* ids) const;
  void MergeLong(Scratch* scratch, std::vector<int32_t>* ids) const;

  std::vector<std::string> contents_;
  TokenIndex index_;
  MergeTable merges_;
  std::vector<int32_t> byte_ids_;  // [256]: byte symbols, or <0xXX> for byte fallback; -1: no token
  std::optional<int32_t> unk_;
  bool byte_level_ = false;
  bool byte_fallback_ = false;
  bool fuse_unk_ = false;
  bool ignore_merges_ = false;
};

}  // namespace kuiper

#include "kuiper/io/spm_tokenizer.h"

#include <sentencepiece_processor.h>

#include <exception>
#include <utility>
#include <vector>

#include "kuiper/base/json.h"
#include "kuiper/base/log.h"
#include "kuiper/io/added_tokens.h"
#include "kuiper/io/byte_tokens.h"
#include "kuiper/io/joined_text.h"
#include "kuiper/io/normalizer.h"

namespace kuiper {
namespace {

constexpr char kSpaceMark[] = "\u2581";

// The type in which sentencepiece takes text: std::string_view or, up to 0.1.96, its own class.
template <typename Result, typename View>
View ParameterOf(Result (sentencepiece::SentencePieceProcessor::*)(View));
using LibraryView =
    decltype(ParameterOf(&sentencepiece::SentencePieceProcessor::LoadFromSerializedProto));

LibraryView View(std::string_view text) {
  return LibraryView(text.data(), text.size());
}

class SpmTokenizer : public Tokenizer {
 public:
  Status Init(std::string_view model, const std::string& name) {
    KU_RETURN_IF_ERROR(Load(model, name));
    const int size = processor_.GetPieceSize();
    bytes_.resize(size);
    for (int id = 0; id < size; ++id) {
      const std::string& piece = processor_.IdToPiece(id);
      if (processor_.IsControl(id)) {
        bytes_[id] = piece;
        if (!piece.empty()) control_.Add(piece, {id, piece, true, false, false, false});
      } else if (processor_.IsByte(id)) {
        const auto byte = ByteFallbackByte(piece);
        if (!byte) return Status(StatusCode::kTokenizer, name + ": bad byte piece " + piece);
        bytes_[id] = std::string(1, *byte);
      } else if (processor_.IsUnknown(id)) {
        std::string surface;
        if (processor_.Decode(std::vector<int>{id}, &surface).ok()) bytes_[id] = surface;
      } else {
        bytes_[id] = ReplaceAll(piece, kSpaceMark, " ");
      }
    }
    strips_space_ = DecoderStripsSpace();
    return OkStatus();
  }

  // tokenizer_config.json may turn BOS off; without that file a model that has a BOS gets it.
  Status ReadConfig(std::string_view config_json, const std::string& name) {
    if (processor_.bos_id() >= 0) bos_ = processor_.bos_id();
    if (processor_.eos_id() >= 0) eos_ = processor_.eos_id();
    if (config_json.empty()) return OkStatus();
    KU_ASSIGN_OR_RETURN(const JsonNode config, ParseJson(config_json, StatusCode::kTokenizer,
                                                         name + ": tokenizer_config.json"));
    const JsonNode* add = config.Find("add_bos_token");
    if (add != nullptr && add->IsBool() && !add->boolean) bos_.reset();
    const JsonNode* eos = config.Find("eos_token");
    if (eos != nullptr && eos->IsObject()) eos = eos->Find("content");
    if (eos != nullptr && eos->IsString() && TokenId(eos->text).has_value()) {
      eos_ = TokenId(eos->text);
    }
    return OkStatus();
  }

  // The last parameter is unused: the library marks each text as a beginning.
  std::vector<int32_t> EncodePieces(std::span<const TextPiece> pieces, bool) const override {
    const JoinedText joined(pieces);
    std::vector<AddedTokenMatcher::Match> matches;
    for (const auto& range : joined.parsed()) {
      control_.Find(joined.text(), range.begin, range.end, matches.empty() ? 0 : matches.back().end,
                    &matches);
    }
    std::vector<int32_t> ids;
    size_t done = 0;
    for (const auto& match : matches) {
      EncodeRun(joined.text().substr(done, match.begin - done), &ids);
      ids.push_back(match.id);
      done = match.end;
    }
    EncodeRun(joined.text().substr(done), &ids);
    return ids;
  }

  std::string_view Bytes(int32_t id) const override {
    return Has(id) ? std::string_view(bytes_[id]) : "";
  }
  bool IsSpecial(int32_t id) const override { return Has(id) && processor_.IsControl(id); }
  std::optional<int32_t> TokenId(std::string_view content) const override {
    const int id = processor_.PieceToId(View(content));
    // PieceToId returns the unknown token for unknown content.
    if (!Has(id) || !processor_.IsControl(id) || bytes_[id] != content) return std::nullopt;
    return id;
  }
  std::optional<int32_t> bos() const override { return bos_; }
  std::optional<int32_t> eos() const override { return eos_; }
  int max_id() const override { return static_cast<int>(bytes_.size()) - 1; }
  bool StripsLeadingSpace() const override { return strips_space_; }

 private:
  bool Has(int32_t id) const { return id >= 0 && static_cast<size_t>(id) < bytes_.size(); }

  // The library reports some faults of a damaged model as a status and throws on others.
  Status Load(std::string_view model, const std::string& name) {
    std::string fault;
    try {
      const auto status = processor_.LoadFromSerializedProto(View(model));
      if (status.ok()) return OkStatus();
      fault = status.ToString();
    } catch (const std::exception& e) {
      fault = e.what();
    }
    return Status(StatusCode::kTokenizer, name + ": not a SentencePiece model: " + fault);
  }

  void EncodeRun(std::string_view text, std::vector<int32_t>* ids) const {
    if (text.empty()) return;
    std::vector<int> run;
    const auto status = processor_.Encode(View(text), &run);
    if (!status.ok()) {  // only damaged models fail to encode a text
      LogWarning("the SentencePiece model cannot encode a text: " + status.ToString());
      run.assign(1, processor_.unk_id());
    }
    ids->insert(ids->end(), run.begin(), run.end());
  }

  // The library does not expose the normaliser's settings, so this decodes a piece that begins with
  // a space.
  bool DecoderStripsSpace() const {
    for (int id = 0; id < processor_.GetPieceSize(); ++id) {
      if (processor_.IsControl(id) || processor_.IsUnknown(id) || processor_.IsByte(id) ||
          !bytes_[id].starts_with(' ')) {
        continue;
      }
      std::string text;
      return processor_.Decode(std::vector<int>{id}, &text).ok() && !text.starts_with(' ');
    }
    return false;
  }

  sentencepiece::SentencePieceProcessor processor_;
  std::vector<std::string> bytes_;  // by id
  AddedTokenMatcher control_;
  std::optional<int32_t> bos_, eos_;
  bool strips_space_ = false;
};

}  // namespace

StatusOr<std::unique_ptr<Tokenizer>> CreateSpmTokenizer(std::string_view model,
                                                        std::string_view config_json,
                                                        const std::string& name) {
  auto tokenizer = std::make_unique<SpmTokenizer>();
  KU_RETURN_IF_ERROR(tokenizer->Init(model, name));
  KU_RETURN_IF_ERROR(tokenizer->ReadConfig(config_json, name));
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

}  // namespace kuiper

// Shards that are read from front to back, cut into stripes: which shard is read when is the sampler's
// affair, and a sample of staging and tracking is a stripe. Nothing in a shard is looked at, so compressed
// ones are as good.
//
// A stripe is a chunk of its file, or several where chunks are small. No chunk belongs to two stripes, so
// that the tiers keep what pays, chunk by chunk, and the source is asked for whole chunks.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cache/base/result.h"
#include "cache/catalog/catalog.h"
#include "plan/formats/samples/sample_index.h"

namespace clairfs {

/// Bytes of a stripe at least: what the kernel reads ahead of a file, so that a READ tells of two stripes at
/// most.
inline constexpr uint64_t kLeastStripe = 1 << 20;

/// Immutable after it was made, so thread-safe without locks. Memory: four bytes a shard, beside the shards.
class Stripes final : public SampleIndex {
 public:
  /// `shards`: samples that are one file each; the stripes come in their order. `format` is a literal.
  /// Errors: EINVAL for more stripes than can be numbered.
  static Result<std::shared_ptr<const Stripes>> make(std::shared_ptr<const Catalog> catalog,
                                                     std::string_view format,
                                                     std::shared_ptr<const SampleIndex> shards);

  std::string_view format() const override { return format_; }
  uint32_t size() const override { return first_.back(); }
  uint32_t range_count(uint32_t) const override { return 1; }
  ByteRange range(uint32_t stripe, uint32_t piece) const override;
  void samples_of(FileId file, uint64_t offset, uint64_t length,
                  const std::function<void(uint32_t sample)>& visit) const override;
  bool shares_files() const override { return true; }
  bool is_stream() const override { return true; }
  const SampleIndex& numbered() const override { return *shards_; }
  /// Those of a shard; none if it is empty or leads out of the dataset.
  SampleSpan parts(uint32_t shard) const override { return {first_[shard], first_[shard + 1]}; }
  /// "train-000.tar[3]", counted from 0.
  std::string path(uint32_t stripe) const override;
  uint64_t memory_bytes() const override;

 private:
  Stripes(std::shared_ptr<const Catalog> catalog, std::string_view format,
          std::shared_ptr<const SampleIndex> shards)
      : catalog_(std::move(catalog)), format_(format), shards_(std::move(shards)) {}

  uint64_t stripe_size(FileId file) const;
  uint32_t shard_of(uint32_t stripe) const;

  const std::shared_ptr<const Catalog> catalog_;
  const std::string_view format_;
  const std::shared_ptr<const SampleIndex> shards_;
  std::vector<uint32_t> first_;  ///< by shard: its first stripe; and one more
};

}  // namespace clairfs

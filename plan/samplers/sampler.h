// A sampler: which sample index each training rank asks for, step by step, epoch by epoch.
//
// All samplers have the same shape. An epoch has one order (usually a permutation of the dataset), made when
// it is needed and shared by all ranks; a rank takes its slice of it by arithmetic. So several ranks on a
// node cost one shuffle and 4 bytes per sample, and the global order is there for placement.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/base/result.h"
#include "cache/base/types.h"
#include "plan/samplers/sampler_spec.h"

namespace clairfs {

/// A training process of the job, counted from 0 to world - 1. Several of them may run on one node.
using TrainingRank = Id<struct TrainingRankTag>;

/// The sample indices of an epoch. Immutable, shared, cheap to copy; thread-safe.
class IndexOrder {
 public:
  /// 0, 1, ..., n - 1, without memory.
  static IndexOrder identity(uint64_t n) { return {nullptr, n}; }
  explicit IndexOrder(const std::shared_ptr<const std::vector<uint32_t>>& indices)
      : IndexOrder(indices, indices->size()) {}
  explicit IndexOrder(std::vector<uint32_t> indices)
      : IndexOrder(std::make_shared<const std::vector<uint32_t>>(std::move(indices))) {}

  uint64_t size() const { return size_; }
  /// REQUIRES: position < size().
  uint32_t operator[](uint64_t position) const {
    return indices_ ? (*indices_)[position] : static_cast<uint32_t>(position);
  }

 private:
  IndexOrder(std::shared_ptr<const std::vector<uint32_t>> indices, uint64_t size)
      : indices_(std::move(indices)), size_(size) {}

  std::shared_ptr<const std::vector<uint32_t>> indices_;  // null: identity
  uint64_t size_;
};

/// Which positions of an epoch's order a rank takes: runs of `run` positions, `stride` apart, from `start`.
struct RankSlice {
  uint64_t count = 0;  ///< samples of the rank in the epoch
  uint64_t start = 0;
  uint64_t stride = 1;
  uint64_t run = 1;
  uint64_t skip = 0;  ///< samples of these runs that come before the epoch's first

  /// Position of the k-th sample, before wrapping at the end of the order.
  uint64_t position(uint64_t k) const {
    k += skip;
    return run == 1 ? start + k * stride : start + k / run * stride + k % run;
  }
};

/// The samples that one rank reads in one epoch, in delivered order. Immutable, cheap to copy; thread-safe.
class RankOrder {
 public:
  RankOrder(IndexOrder order, RankSlice slice) : order_(std::move(order)), slice_(slice) {}

  uint64_t size() const { return slice_.count; }
  /// The k-th sample index. REQUIRES: k < size().
  uint32_t operator[](uint64_t k) const {
    const uint64_t position = slice_.position(k);
    return order_[position < order_.size() ? position : position % order_.size()];
  }
  std::vector<uint32_t> to_vector() const;

 private:
  IndexOrder order_;
  RankSlice slice_;
};

/// Made by make_sampler(). One thread at a time, except for what says otherwise.
class Sampler {
 public:
  explicit Sampler(uint32_t world) : world_(world) {}
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;
  virtual ~Sampler() = default;

  uint32_t world() const { return world_; }
  /// How many epochs there are, when that is bounded (a list with one order per epoch). Thread-safe.
  virtual std::optional<uint32_t> epoch_count() const { return std::nullopt; }

  /// The order that the ranks of an epoch share. Keep it for as long as ranks need it: every call makes it
  /// again. Errors: EINVAL (seed + epoch out of the library's range), ERANGE (no such epoch, or too far ahead
  /// to reach), ENOMEM, ESTALE and EIO (list files).
  Result<IndexOrder> order(Epoch epoch);
  /// A rank's share of it. REQUIRES: rank < world(). Thread-safe.
  virtual RankSlice slice(Epoch epoch, TrainingRank rank) const = 0;

  /// order() and slice() in one; for several ranks of an epoch, call order() once. Errors: as order(), and
  /// EINVAL when rank >= world().
  Result<RankOrder> rank_order(Epoch epoch, TrainingRank rank);

 private:
  virtual Result<IndexOrder> make_order(Epoch epoch) = 0;

  const uint32_t world_;
};

/// Checks what the sampler takes of `spec`, and makes it. Errors: EINVAL naming the key and what would be
/// right; ENOTSUP, with the way round it, for what cannot be predicted or is not implemented.
Result<std::unique_ptr<Sampler>> make_sampler(const SamplerSpec& spec);

/// The names that make_sampler() knows, in the order of its table.
std::vector<std::string> sampler_names();

/// The one name for what a framework calls `name` ("streamingdataset": "streaming"); others come back as they
/// are. REQUIRES: lower case.
std::string canonical_sampler(const std::string& name);

/// The keys of a plan that the sampler of that canonical name takes, of those that not all samplers take.
/// Keys of no sampler are for all. Not in it are the keys of the lists that some need (list, indices,
/// weights). None for any other name.
std::span<const std::string_view> sampler_keys(std::string_view sampler);

/// The properties of a sampler that the rest of a plan's handling needs.
struct SamplerTraits {
  bool divides = false;   ///< the ranks of a job share an epoch's samples; else each of them reads all
  bool seeded = true;     ///< without a seed its order cannot be predicted
  bool in_loader = true;  ///< a DataLoader batches what each rank gets, and may drop a last short batch
  bool drops = false;     ///< drop_last is an argument of its own; else of its loader alone
};

/// Those of the sampler of that canonical name; the defaults for any other.
SamplerTraits sampler_traits(std::string_view sampler);

}  // namespace clairfs

// The input of placement: how often each node uses each chunk, and when the job uses it first.
//
// In the common case a chunk is used once in an epoch, by one node: two bytes a chunk and epoch name that
// node. Further uses (sampling with replacement, padding) are kept as counts by chunk and node.
//
// Files in which samples share chunks are another matter: records. Every node comes to nearly all of their
// chunks, and none to one of them much more than the others do. So their uses are not counted, only which of
// their chunks are used.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "cache/base/types.h"
#include "cache/catalog/catalog.h"
#include "plan/formats/samples/sample_index.h"
#include "plan/sequence/access_sequence.h"

namespace clairfs {

/// How often each node uses each chunk over the epochs that were added, and when the job uses it first.
/// Memory: two bytes a chunk and epoch, twelve a chunk, twelve for each node that uses a chunk more than once
/// in an epoch or is not the first to. Not thread-safe, not even its const functions.
class JobUses {
 public:
  static constexpr uint32_t kMostNodes = 65534;
  /// REQUIRES: 1 <= nodes <= kMostNodes; the catalog and every `index` outlive the calls of add().
  JobUses(const Catalog& catalog, uint32_t nodes);

  /// One epoch of one node, from first_position() on; first all nodes of an epoch, then those of the next. A
  /// chunk that one sample touches twice in a row counts once. Nodes beyond nodes() are left out. Takes time
  /// in the order of the touches. Several plans may be added one after the other.
  void add(const EpochSequence& sequence, const SampleIndex& index, NodeId node);
  /// Notes which chunks of records a plan uses, which add() does too, for its `index`. True if it uses no
  /// others, so that add() has nothing to count. Takes time in the order of the samples.
  bool add_records(const SampleIndex& index);
  /// Lets go of what only add() needs.
  void finish();

  uint32_t nodes() const { return nodes_; }
  uint32_t chunks() const { return static_cast<uint32_t>(first_uses_.size()); }
  /// Whether the chunk is one of records that are used.
  bool of_records(ChunkId chunk) const { return !records_.empty() && records_[chunk.index()]; }
  /// Whether any node uses the chunk.
  bool used(ChunkId chunk) const { return of_records(chunk) || total(chunk) > 0; }
  uint32_t uses(ChunkId chunk, NodeId node) const;
  /// Uses by all nodes; 0 for chunks of records.
  uint32_t total(ChunkId chunk) const {
    settle();
    return totals_[chunk.index()];
  }
  /// Calls `visit(NodeId, uint32_t uses)` for the chunk's uses; a node may come several times.
  template <class Visit>
  void for_each_use(ChunkId chunk, Visit&& visit) const {
    settle();
    for (const auto& users : epochs_) {
      if (users[chunk.index()] != kNobody) visit(NodeId(users[chunk.index()]), uint32_t{1});
    }
    if (repeats_.empty()) return;
    for (auto repeat = first_repeat(chunk); repeat != repeats_.end() && repeat->chunk == chunk; ++repeat) {
      visit(repeat->node, repeat->count);
    }
  }
  /// One node's uses, by chunk.
  std::vector<uint32_t> uses_of(NodeId node) const;
  /// When the job touches a chunk first, by position in the node's sequence, so that equally fast nodes are
  /// taken to be equally far: of two chunks, the one with the smaller number is used first.
  uint32_t first_use(ChunkId chunk) const { return first_uses_[chunk.index()]; }

  uint64_t memory_bytes() const;

 private:
  static constexpr uint16_t kNobody = std::numeric_limits<uint16_t>::max();
  struct Repeat {
    ChunkId chunk;
    NodeId node;
    uint32_t count = 0;
  };

  void begin_epoch(const EpochSequence& sequence, const SampleIndex& index);
  void number_chunks(const SampleIndex& index);
  std::vector<bool> files_of_records(const SampleIndex& index) const;
  template <class Visit>
  void for_each_touch(const EpochSequence& sequence, const SampleIndex& index, Visit&& visit) const;
  void keep_first_use(ChunkId chunk, uint32_t position);
  void keep_repeats(NodeId node);
  void settle() const {
    if (!settled_) settle_now();
  }
  void settle_now() const;
  void merge_repeats() const;
  std::vector<Repeat>::const_iterator first_repeat(ChunkId chunk) const;

  const Catalog* catalog_;
  uint32_t nodes_;

  std::vector<std::vector<uint16_t>> epochs_;  // by epoch and chunk: the node that used it first, or kNobody
  std::vector<bool> records_;                  // by chunk: of_records(); empty: none is
  std::vector<uint32_t> first_uses_;           // by chunk: position since the first epoch's begin
  uint32_t unused_;                            // chunks

  // Derived from epochs_, or merged, when it is asked for.
  mutable bool settled_ = false;
  mutable std::vector<uint32_t> totals_;  // by chunk
  // By chunk and node, what epochs_ does not say: sorted and unique, and what is not merged yet.
  mutable std::vector<Repeat> repeats_;
  mutable std::vector<Repeat> fresh_repeats_;

  // Where add() is.
  const SampleIndex* index_ = nullptr;
  bool only_records_ = false;              // the index has no other chunks
  std::optional<Epoch> epoch_;             // of the index; nothing: none yet
  uint64_t base_ = 0;                      // position of the epoch's begin
  uint64_t longest_ = 0;                   // of the epoch's sequences
  bool all_used_before_ = false;           // every chunk, in an earlier epoch
  std::vector<uint32_t> chunk_of_sample_;  // where no sample has more than one; else empty
  std::vector<uint32_t> again_;            // by chunk: repeats by the node being added
  std::vector<ChunkId> used_again_;        // where again_ is not 0
};

}  // namespace clairfs

// PlanSpec: what a script says about its future accesses, as one plain struct, and its spellings.
//
// A plan is text, `key=value` pairs separated by white space, or a JSON object with the same keys. It comes
// by an xattr, the control file, the socket or the command line; parse_plan() reads it in any case, and
// format_plan() shows it. A value with white space stands in quotes: '...' takes everything literally, "..."
// knows \" and \\.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/base/result.h"
#include "cache/base/types.h"
#include "plan/samplers/keys.h"

namespace clairfs {

/// The name of plans that were not registered but found from what readers do.
inline constexpr std::string_view kFoundPlan = "auto";

/// Longest plan text in bytes, as given and as read back. Every door has the same limit: an xattr takes 64
/// KiB (XATTR_SIZE_MAX), a message to a job's other nodes a little less. Longer lists, weights or indices
/// belong in a file.
inline constexpr size_t kMaxPlanText = 56 << 10;

/// A zero or an empty string means "not given" unless said otherwise. Equal specs are one plan. SamplerKeys
/// is a base, so that the table of keys and readers of a plan name all members in one way.
struct PlanSpec : SamplerKeys {
  std::string name = "default";  ///< several plans may be active; the name tells them apart

  // The dataset, and how the framework numbers its samples.
  std::string root;              ///< folder inside the dataset; empty: the dataset itself
  std::string format;            ///< one of plan_formats(); empty: detected
  std::string file;              ///< npy, raw, lmdb ...: what holds the samples, relative to `root`
  std::string list;              ///< file with paths, ranges or indices, or an array "[3,1,2]" in place
  uint64_t record = 0;           ///< raw: bytes of a sample
  uint64_t header = 0;           ///< raw: bytes before a file's first sample
  uint64_t stride = 0;           ///< raw: bytes from one sample to the next; 0: `record`
  std::string dataset;           ///< hdf5: names of datasets, parted by commas
  std::string lmdb_keys;         ///< `keys`: cursor, decimal, patterns such as image-%09d, or a file of keys
  std::string skip;              ///< lmdb: patterns of keys that are no samples, beside the usual ones
  std::string db;                ///< lmdb: a named database; empty: the main one
  uint64_t sequence_length = 0;  ///< megatron: tokens of a GPT sample; 0: samples are sequences
  uint64_t train_samples = 0;    ///< megatron: samples that training asks for; 0: one epoch's
  std::string split;             ///< megatron: such as 969,30,1; empty: all documents are trained on
  std::string cache;             ///< megatron: where GPTDataset's indexes are saved; empty: they are computed
  bool random_access = false;    ///< tar, tfrecord: samples are read at random, not shards from front to back
  bool allow_empty = false;      ///< imagefolder: class folders without an image are no error
  uint64_t n = 0;                ///< samples expected in the dataset; 0: as many as there are
  std::string index;             ///< identity of the samples expected in packed files; empty: any

  // The order, with SamplerKeys.
  std::string sampler = "torch.distributed";
  std::string seed;  ///< decimal without leading zeros; numpy.* also "[1,2]", python.random also "str:text"
  std::string dataset_shuffle;  ///< seed of a .shuffle() that the dataset itself has had; empty: none
  bool shuffle = true;
  std::string drop_last = "false";   ///< false, true (sampler and loader), sampler, loader
  std::string replacement;           ///< true, false; empty: the sampler's own default
  uint64_t num_samples = 0;          ///< samples an epoch draws; 0: all
  std::string set_epoch = "always";  ///< always, never: does the script call set_epoch()?
  std::string reseed;                ///< once, epoch: numpy.* and python.random; empty: once
  std::string method;                ///< permutation, shuffle, sample: the same samplers; empty: permutation
  std::string generator;             ///< torch.random ...: loader, sampler, default; empty: as usual for it
  std::string torch;                 ///< library version such as 2.6; empty: newest
  std::string torchdata;             ///< the same
  std::string accelerate;            ///< the same
  std::string num_repeats;           ///< timm.repeataug, torchvision.ra; empty: 3
  std::string shard;                 ///< tf.*, webdataset: before, after, none: where the split stands
  uint64_t cycle_length = 0;         ///< files that tf.data's interleave() reads at once; 0: no interleave()
  std::string shardshuffle;          ///< webdataset: shards in its buffer; empty: in their order
  std::string shard_sizes;           ///< streaming: index.json, or a file or array of samples of each shard
  uint64_t gcc = 0;                  ///< major version that built DALI's std::shuffle; 0: newest
  std::string weights;               ///< torch.weighted: file or array
  std::string indices;               ///< torch.subset: file or array

  // The job.
  uint64_t epochs = 0;           ///< 0: until the plan is cancelled
  uint64_t first_epoch = 0;      ///< the epoch the job starts (or resumes) with
  uint64_t start_sample = 0;     ///< samples of `first_epoch` that every training rank already has
  uint64_t world = 0;            ///< training ranks of the job; 0: one a node
  uint64_t ranks_per_node = 0;   ///< training ranks a node hosts; 0: world / nodes
  uint64_t batch = 1;            ///< samples a rank takes a step (nopfs: all ranks together)
  uint64_t workers = 0;          ///< DataLoader workers a rank
  uint64_t prefetch_factor = 2;  ///< batches in flight a worker (PyTorch's default)

  bool operator==(const PlanSpec&) const = default;

  /// Makes it the plan of all that a job like this one reads: from its first epoch on, until it is cancelled.
  void forget_place() { epochs = first_epoch = start_sample = epochs_before = 0; }
  /// Makes it one that begins later, with the same process still reading.
  void move_to(uint64_t epoch);

  /// Whether what holds the samples are shards.
  bool names_shards() const { return format == "shards" || format == "tar" || format == "tfrecord"; }
  /// Whether they are read from front to back.
  bool reads_streams() const { return names_shards() && !random_access; }
  /// Whether MosaicML's StreamingDataset copies them, in the order in which it needs them.
  bool copies_shards() const { return reads_streams() && sampler == "streaming"; }
  /// Whether `list` says what the samples are, and not in which order they come.
  bool list_numbers_samples() const {
    return format == "list" || format == "ranges" || (names_shards() && !list.empty() && sampler != "list");
  }

  bool replaces() const { return replacement.empty() ? sampler == "torch.weighted" : replacement == "true"; }
  bool drops_in_sampler() const { return drop_last == "true" || drop_last == "sampler"; }
  bool drops_in_loader() const { return drop_last == "true" || drop_last == "loader"; }
};

/// All formats that a plan may name.
std::span<const std::string_view> plan_formats();

/// The format that the name of a file, or a pattern of names, speaks of; empty if none.
std::string_view format_of_file(std::string_view path);

/// Whether two nodes were told the same, though only one has found the samples yet.
bool same_plan(PlanSpec a, const PlanSpec& b);

/// Whether a value of list, weights or indices is a file named by a relative path; not "[3,1,2]", the values
/// themselves.
inline bool is_relative_file(const std::string& value) {
  return !value.empty() && !value.starts_with('/') && !value.starts_with('[');
}

/// Whether `keys` is the name of a file.
inline bool keys_name_file(const std::string& keys) {
  return !keys.empty() && keys != "cursor" && keys != "decimal" && keys.find('%') == std::string::npos;
}

/// Calls `visit(key, value)` for each value of a PlanSpec, const or not, that may be a file.
template <class Spec, class Visit>
void for_each_file(Spec& spec, Visit&& visit) {
  visit("list", spec.list);
  visit("weights", spec.weights);
  visit("indices", spec.indices);
  visit("shard_sizes", spec.shard_sizes);
  if (keys_name_file(spec.lmdb_keys)) visit("keys", spec.lmdb_keys);
}

/// Errors: EINVAL for more than kMaxPlanText bytes.
Status check_plan_size(std::string_view text);

/// Reads key=value text, or JSON if the first character is '{', and checks everything that needs no dataset.
/// Errors: EINVAL; the message names the key, what was seen and what would be right.
Result<PlanSpec> parse_plan(std::string_view text);

/// One line, keys in the order of plan_keys(), those at their default left out except the ones people look
/// for (name, format, sampler, seed, epochs, batch, workers ...). parse_plan(format_plan(spec)) == spec.
std::string format_plan(const PlanSpec& spec);

/// The same for people: a generator's state and lists in place are shortened. It does not read back.
std::string describe_plan(const PlanSpec& spec);

/// The same as a JSON object; reads back equal when all values are UTF-8 (other bytes become U+FFFD).
std::string format_plan_json(const PlanSpec& spec);

/// Checks across keys that need no dataset; parse_plan() has done it already. Errors: EINVAL.
Status validate_plan(const PlanSpec& spec);

/// Fills `world` and `ranks_per_node` for a job on `nodes` nodes (at least 1). Errors: EINVAL when the ranks
/// do not divide among the nodes.
Result<PlanSpec> resolve_plan(PlanSpec spec, uint32_t nodes);

/// Nodes that host training ranks. REQUIRES: resolved.
inline uint32_t plan_nodes(const PlanSpec& spec) {
  return static_cast<uint32_t>(spec.world / spec.ranks_per_node);
}

}  // namespace clairfs

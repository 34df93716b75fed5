// A plan's words on its sampler, before they are checked.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/base/result.h"
#include "plan/random/libstdcxx_shuffle.h"
#include "plan/random/torch_random.h"
#include "plan/samplers/index_lists.h"
#include "plan/samplers/keys.h"

namespace clairfs {

/// How NumPy and Python samplers treat their generator at the start of an epoch.
enum class Reseed {
  once,   ///< one generator for the whole job
  epoch,  ///< a fresh one from seed + epoch
};

/// Which call of NumPy or Python makes an epoch's order.
enum class ShuffleMethod {
  permutation,  ///< rng.permutation(n); in Python: a fresh list(range(n)), shuffled
  shuffle,      ///< rng.shuffle(indices) on the list of the epoch before (with reseed=epoch: on a fresh one)
  sample,       ///< Python only: random.sample(range(n), num_samples)
};

/// Which of torch's generators drives the sampler.
enum class TorchGeneratorUse {
  loader,   ///< DataLoader(generator=G), which hands G to its sampler and draws its base_seed from it
  sampler,  ///< a sampler constructed with generator=G, under a DataLoader without one
  default_generator,  ///< the default generator: torch.manual_seed(seed), no generator=
};

/// Of libraries that count like torch: accelerate, torchdata.
using LibraryVersion = TorchVersion;
inline constexpr LibraryVersion kNewestLibrary = kNewestTorch;

/// Where a tf.data pipeline's .shard() stands, or WebDataset's splits by node and worker.
enum class ShardPlace {
  none,    ///< nowhere: each rank reads all
  before,  ///< before the shuffle: each rank (or worker) shuffles its own share
  after,   ///< after the shuffle: each takes its share of one order
};

/// The keys of a plan that its sampler sees: `args` as the plan has them, the others in the terms of
/// samplers. Keys that are left unset take the library's own defaults; those that the sampler does not take
/// (sampler_keys()) have no effect. A plain value; make_sampler() checks it.
struct SamplerSpec {
  std::string sampler = "torch.distributed";
  uint64_t n = 0;      ///< samples in the dataset
  uint32_t world = 1;  ///< training ranks, over all nodes (nopfs: its nodes; dali: its shards)
  uint32_t batch = 1;  ///< DataLoader batch of one rank (nopfs: the batch of all nodes together)

  std::string seed = {};  ///< as written: "42", "-1"; numpy also "[1,2]"; python.random also "str:text"
  SamplerKeys args = {};
  bool set_epoch = true;   ///< false when the script never calls set_epoch (webdataset: detshuffle2's)
  bool shuffle = true;     ///< torch.distributed
  bool drop_last = false;  ///< the sampler's own if it has one (SamplerTraits); else the DataLoader's
  bool in_order = true;    ///< DataLoader(in_order=); false cannot be predicted
  std::optional<bool> replacement = {};  ///< torch.random (false), torch.weighted (true)
  std::optional<uint64_t> num_samples =
      {};  ///< torch.random, torch.weighted, python.random method=sample (n)
  std::optional<TorchGeneratorUse> generator = {};  ///< torch.random (loader), subset and weighted (sampler)
  TorchVersion torch = kNewestTorch;

  std::optional<ShuffleMethod> method = {};  ///< numpy.*, python.random (permutation), webdataset (none)
  std::optional<Reseed> reseed = {};         ///< numpy.*, python.random (once)

  std::optional<LibstdcxxShuffle> libstdcxx = {};  ///< dali: the compiler of its wheel (since GCC 11)

  uint32_t ranks_per_node = 1;  ///< streaming
  uint32_t workers = 0;         ///< DataLoader workers of a rank: torchdata.random, webdataset, streaming
  uint32_t first_epoch = 0;  ///< the epoch that `state` (torchdata.random) or sample_in_epoch belongs to, and
                             ///< with which the process begins to count (webdataset, tf.*, dali)

  std::string dataset_shuffle = {};  ///< any: the seed of a .shuffle() that the dataset itself has had

  LibraryVersion accelerate = kNewestLibrary;  ///< since 0.24
  LibraryVersion torchdata = kNewestLibrary;   ///< torchdata.random, since 0.8
  double num_repeats = 3;                      ///< timm.repeataug, torchvision.ra
  ShardPlace shard = ShardPlace::none;         ///< tf.*, webdataset (none: before)
  std::optional<uint64_t> shardshuffle = {};   ///< webdataset: buffer of shards; none: in their order

  std::shared_ptr<const std::vector<uint32_t>> shard_sizes = {};  ///< streaming: samples of each shard
  std::vector<double> weights = {};                               ///< torch.weighted
  std::shared_ptr<const IndexLists> lists = {};  ///< list, torch.subset (which takes one list)
};

}  // namespace clairfs

// The arguments of samplers that reach them as a plan has them.
#pragma once

#include <cstdint>
#include <string>

namespace clairfs {

/// Keys of a plan that only some samplers take (sampler_keys()). PlanSpec has them as members of its own, and
/// SamplerSpec has a copy. Not in it are keys that samplers get as another type: each of the two has a member
/// for such a key, and sampler_spec() converts it. A zero or an empty string means "not given" unless said
/// otherwise.
struct SamplerKeys {
  bool random_shuffle = false;  ///< dali, as given to its reader; so are the next three
  bool shuffle_after_epoch = false;
  bool stick_to_shard = false;
  bool checkpointing = false;
  bool persistent_workers = false;  ///< as given to DataLoader
  uint64_t epochs_before = 0;  ///< dali, webdataset, tf.*: what the process has read when first_epoch begins
  uint64_t draws = 0;          ///< torch.random ...: what others draw from it before the first epoch
  uint64_t other_draws = 0;    ///< torch.random ...: what others draw from the generator between epochs
  bool use_seedable_sampler = true;      ///< accelerate, as given to it; so are the next three
  bool even_batches = true;              ///< make all ranks' batches full and equally many
  bool split_batches = false;            ///< `batch` is that of all ranks together
  bool dispatch_batches = false;         ///< rank 0 reads for all
  uint64_t block = 0;                    ///< strided: consecutive samples of a rank; 0: one
  uint64_t selected_round = 256;         ///< timm.repeataug; 0: all samples count
  uint64_t selected_ratio = 0;           ///< timm.repeataug; 0: world
  bool data_sharding = true;             ///< megatron.random
  uint64_t buffer_size = 0;              ///< tf.shuffle; 0: the whole dataset
  std::string global_seed = {};          ///< tf.*: of tf.random.set_seed(); empty: not called
  bool reshuffle_each_iteration = true;  ///< tf.shuffle
  uint64_t initial = 0;                  ///< webdataset: shards in the buffer before one leaves it; 0: 100
  bool detshuffle = false;               ///< webdataset
  std::string shuffle_algo = {};         ///< streaming; empty: py1e
  uint64_t shuffle_block_size = 0;       ///< streaming; 0: the library's default
  uint64_t num_canonical_nodes = 0;      ///< streaming; 0: the library's default
  uint64_t initial_physical_nodes = 0;   ///< streaming: nodes of the run that is resumed; 0: as many as now
  uint64_t sample_in_epoch = 0;          ///< streaming: samples of first_epoch that the job has seen
  std::string state = {};                ///< base64 of torch.Generator.get_state(), instead of a seed

  bool operator==(const SamplerKeys&) const = default;
};

}  // namespace clairfs

// Megatron-LM's samplers of micro-batches, over data-parallel ranks.
// Source: NVIDIA/Megatron-LM, megatron/legacy/data/data_samplers.py (MegatronPretrainingSampler,
// MegatronPretrainingRandomSampler). A resumed job's consumed_samples are whole epochs (first_epoch) and, a
// world-th of the rest, start_sample.
#include "plan/samplers/families.h"
#include "plan/samplers/support.h"

namespace clairfs {
namespace {

// The generator is seeded with the epoch's number alone, so every job has the same orders.
class MegatronRandom : public Sampler {
 public:
  explicit MegatronRandom(const SamplerSpec& spec)
      : Sampler(spec.world),
        micro_batch_(spec.batch),
        sharded_(spec.args.data_sharding),
        torch_(spec.torch),
        bucket_(spec.n / (micro_batch_ * world()) * micro_batch_),
        shared_(spec.n / micro_batch_ * micro_batch_) {}

  RankSlice slice(Epoch, TrainingRank rank) const override {
    if (sharded_) return span_slice(rank.value * bucket_, (rank.value + 1) * bucket_);
    RankSlice mine = strided_slice(shared_, world(), rank.value);
    mine.count -= mine.count % micro_batch_;
    return mine;
  }

 private:
  Result<IndexOrder> make_order(Epoch epoch) override {
    Result<std::vector<uint32_t>> order =
        seeded_randperm(BigInteger(epoch.value), sharded_ ? bucket_ : shared_, torch_);
    if (!order) return order.error();
    if (!sharded_) return IndexOrder(std::move(*order));
    // Every rank shuffles its own bucket in the same way.
    std::vector<uint32_t> buckets(bucket_ * world());
    for (uint64_t k = 0; k < buckets.size(); ++k) {
      buckets[k] = static_cast<uint32_t>(k / bucket_ * bucket_ + (*order)[k % bucket_]);
    }
    return IndexOrder(std::move(buckets));
  }

  const uint64_t micro_batch_;
  const bool sharded_;
  const TorchVersion torch_;
  const uint64_t bucket_;  // samples of a rank, data_sharding
  const uint64_t shared_;  // samples of all ranks, otherwise
};

// Micro-batches in the order of the dataset, dealt round robin; what does not fill a round is left out.
class MegatronSequential : public Sampler {
 public:
  explicit MegatronSequential(const SamplerSpec& spec)
      : Sampler(spec.world), n_(spec.n), micro_batch_(spec.batch) {}

  RankSlice slice(Epoch, TrainingRank rank) const override {
    return batch_slice(n_, micro_batch_ * world(), micro_batch_, rank.value, true);
  }

 private:
  Result<IndexOrder> make_order(Epoch) override { return IndexOrder::identity(n_); }

  const uint64_t n_;
  const uint64_t micro_batch_;
};

Status check_megatron_size(const SamplerSpec& spec) {
  if (spec.n >= uint64_t{spec.batch} * spec.world) return {};
  return bad_key("n", "Megatron refuses a dataset that does not fill a micro-batch of each rank");
}

}  // namespace

SamplerResult make_megatron_random(const SamplerSpec& spec) {
  if (const Status size = check_megatron_size(spec); !size) return size.error();
  return SamplerResult(std::make_unique<MegatronRandom>(spec));
}

SamplerResult make_megatron_sequential(const SamplerSpec& spec) {
  if (const Status size = check_megatron_size(spec); !size) return size.error();
  return SamplerResult(std::make_unique<MegatronSequential>(spec));
}

}  // namespace clairfs

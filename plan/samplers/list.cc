// sampler=list: the order is given. With several ranks it is the order of all of them, step by step: position
// p belongs to rank p mod world.
#include <cerrno>
#include <limits>

#include "plan/samplers/families.h"
#include "plan/samplers/support.h"

namespace clairfs {
namespace {

class ListSampler : public Sampler {
 public:
  explicit ListSampler(const SamplerSpec& spec)
      : Sampler(spec.world), lists_(spec.lists), whole_batch_(spec.drop_last ? spec.batch : 1) {}

  std::optional<uint32_t> epoch_count() const override {
    if (lists_->count() == 1) return std::nullopt;
    return static_cast<uint32_t>(lists_->count());
  }
  RankSlice slice(Epoch epoch, TrainingRank rank) const override {
    const size_t list = list_of(epoch);
    const uint64_t size = list < lists_->count() ? lists_->size(list) : 0;
    RankSlice slice = strided_slice(size, world(), rank.value);
    slice.count -= slice.count % whole_batch_;
    return slice;
  }

 private:
  size_t list_of(Epoch epoch) const { return lists_->count() == 1 ? 0 : epoch.index(); }

  Result<IndexOrder> make_order(Epoch epoch) override {
    const size_t list = list_of(epoch);
    if (list >= lists_->count()) {
      return Error{ERANGE, "epoch: " + std::to_string(epoch.value) + " is past the " +
                               std::to_string(lists_->count()) + " epochs of the list"};
    }
    Result<std::vector<uint32_t>> indices = lists_->read(list);
    if (!indices) return indices.error();
    return IndexOrder(std::move(*indices));
  }

  const std::shared_ptr<const IndexLists> lists_;
  const uint64_t whole_batch_;  // of the DataLoader, when it drops the last one
};

}  // namespace

SamplerResult make_list(const SamplerSpec& spec) {
  if (!spec.lists) return bad_key("list", "missing; sampler=list needs list=FILE, one sample index per line");
  if (spec.lists->count() > std::numeric_limits<uint32_t>::max()) return bad_key("list", "too many epochs");
  return SamplerResult(std::make_unique<ListSampler>(spec));
}

}  // namespace clairfs

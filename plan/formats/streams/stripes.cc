#include "plan/formats/streams/stripes.h"

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

namespace clairfs {

uint64_t Stripes::stripe_size(FileId file) const {
  const uint64_t chunk = catalog_->chunk_size(file);
  return (kLeastStripe + chunk - 1) / chunk * chunk;
}

Result<std::shared_ptr<const Stripes>> Stripes::make(std::shared_ptr<const Catalog> catalog,
                                                     std::string_view format,
                                                     std::shared_ptr<const SampleIndex> shards) {
  const std::shared_ptr<Stripes> made(new Stripes(std::move(catalog), format, std::move(shards)));
  uint64_t count = 0;
  made->first_.reserve(uint64_t{made->shards_->size()} + 1);
  for (uint32_t shard = 0; shard < made->shards_->size(); ++shard) {
    made->first_.push_back(static_cast<uint32_t>(count));
    if (made->shards_->range_count(shard) == 0) continue;
    const ByteRange all = made->shards_->range(shard, 0);
    const uint64_t stripe = made->stripe_size(all.file);
    count += all.length / stripe + (all.length % stripe == 0 ? 0 : 1);
    if (count >= UINT32_MAX) return Error{EINVAL, "plan: the shards have more stripes than can be numbered"};
  }
  made->first_.push_back(static_cast<uint32_t>(count));
  return std::shared_ptr<const Stripes>(made);
}

uint32_t Stripes::shard_of(uint32_t stripe) const {
  const auto after = std::upper_bound(first_.begin(), first_.end(), stripe);
  return static_cast<uint32_t>(after - first_.begin() - 1);
}

ByteRange Stripes::range(uint32_t stripe, uint32_t) const {
  const uint32_t shard = shard_of(stripe);
  const ByteRange all = shards_->range(shard, 0);
  const uint64_t size = stripe_size(all.file);
  const uint64_t offset = (stripe - first_[shard]) * size;
  return {all.file, offset, std::min(size, all.length - offset)};
}

void Stripes::samples_of(FileId file, uint64_t offset, uint64_t length,
                         const std::function<void(uint32_t sample)>& visit) const {
  if (length == 0) return;  // who opens a shard has read nothing of it
  const uint64_t size = stripe_size(file);
  shards_->samples_of(file, 0, 1, [&](uint32_t shard) {
    const auto [first, end] = parts(shard);
    for (uint64_t i = offset / size; i <= (offset + length - 1) / size && first + i < end; ++i)
      visit(static_cast<uint32_t>(first + i));
  });
}

std::string Stripes::path(uint32_t stripe) const {
  const uint32_t shard = shard_of(stripe);
  return fmt::format("{}[{}]", shards_->path(shard), stripe - first_[shard]);
}

uint64_t Stripes::memory_bytes() const {
  return sizeof(*this) + first_.capacity() * sizeof(uint32_t) + shards_->memory_bytes();
}

}  // namespace clairfs

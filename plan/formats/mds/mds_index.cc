#include "plan/formats/mds/mds_index.h"

#include <cerrno>
#include <limits>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "plan/spec/keys.h"

namespace clairfs {
namespace {

using Json = nlohmann::json;

Error bad_index(std::string_view what) {
  return Error{EINVAL, fmt::format("index.json: {}", what)};
}

// The member of that name; null when there is none.
const Json& member(const Json& object, const char* name) {
  static const Json none;
  const auto found = object.find(name);
  return found == object.end() ? none : *found;
}

Result<MdsShard> parse_shard(const Json& json, size_t number) {
  const auto wrong = [number](std::string_view what) {
    return bad_index(fmt::format("shard {}: {}", number, what));
  };
  if (!json.is_object()) return wrong("want an object");
  const Json& samples = member(json, "samples");
  if (!samples.is_number_unsigned() || samples.get<uint64_t>() > std::numeric_limits<uint32_t>::max()) {
    return wrong("want its number of samples");
  }
  MdsShard shard;
  shard.samples = samples.get<uint32_t>();
  if (const Json& format = member(json, "format"); format.is_string())
    shard.format = format.get<std::string>();
  shard.compressed = !member(json, "compression").is_null();
  if (const Json& raw = member(json, "raw_data"); raw.is_object()) {
    const Json& basename = member(raw, "basename");
    if (basename.is_string()) shard.basename = basename.get<std::string>();
  }
  return shard;
}

}  // namespace

Result<std::vector<MdsShard>> parse_mds_index(std::string_view text) {
  if (text.size() > kMaxMdsIndexBytes) return bad_index("larger than 64 MiB");
  bool too_deep = false;
  const auto shallow = [&too_deep](int depth, Json::parse_event_t, Json&) {
    too_deep = too_deep || depth >= kDeepestJson;
    return !too_deep;
  };
  const Json index = Json::parse(text, shallow, false);
  if (too_deep || !index.is_object()) return bad_index("want a JSON object as MDSWriter writes it");
  const Json& shards = member(index, "shards");
  if (!shards.is_array() || shards.empty()) return bad_index("want its array of shards");
  std::vector<MdsShard> parsed;
  parsed.reserve(shards.size());
  for (const Json& json : shards) {
    Result<MdsShard> shard = parse_shard(json, parsed.size());
    if (!shard) return shard.error();
    parsed.push_back(std::move(*shard));
  }
  return parsed;
}

Result<std::vector<uint32_t>> mds_shard_sizes(const std::vector<MdsShard>& shards) {
  std::vector<uint32_t> sizes;
  uint64_t total = 0;
  for (const MdsShard& shard : shards) {
    if (shard.samples == 0) return bad_index(fmt::format("shard {} has no sample", sizes.size()));
    total += shard.samples;
    if (total >= std::numeric_limits<uint32_t>::max()) return bad_index("more than 4294967294 samples");
    sizes.push_back(shard.samples);
  }
  return sizes;
}

}  // namespace clairfs

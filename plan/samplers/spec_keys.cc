// The keys of a SamplerSpec as text.
#include <algorithm>
#include <charconv>
#include <limits>

#include "cache/base/text.h"
#include "plan/samplers/sampler_spec.h"
#include "plan/samplers/support.h"

namespace clairfs {
namespace {

using KeyParser = Status (*)(SamplerSpec&, std::string_view key, std::string_view value);

Error wrong_value(std::string_view key, std::string_view value, std::string_view right) {
  return bad_key(key, "'" + std::string(value.substr(0, 64)) + "' is not " + std::string(right));
}

template <auto member>
Status set_text(SamplerSpec& spec, std::string_view, std::string_view value) {
  spec.*member = value;
  return {};
}

template <auto member>
Status set_flag(SamplerSpec& spec, std::string_view key, std::string_view value) {
  const bool yes = value == "true" || value == "True" || value == "1" || value == "yes";
  const bool no = value == "false" || value == "False" || value == "0" || value == "no";
  if (!yes && !no) return wrong_value(key, value, "true or false");
  spec.*member = yes;
  return {};
}

template <auto member>
Status set_count(SamplerSpec& spec, std::string_view key, std::string_view value) {
  const auto number = parse_whole<std::remove_reference_t<decltype(spec.*member)>>(value);
  if (!number) return wrong_value(key, value, "a number, such as 8");
  spec.*member = *number;
  return {};
}

Status set_num_samples(SamplerSpec& spec, std::string_view key, std::string_view value) {
  spec.num_samples = parse_whole<uint64_t>(value);
  if (!spec.num_samples) return wrong_value(key, value, "a number, such as 50000");
  return {};
}

Status set_set_epoch(SamplerSpec& spec, std::string_view key, std::string_view value) {
  if (value != "never" && value != "always") return wrong_value(key, value, "never or always");
  spec.set_epoch = value == "always";
  return {};
}

Status set_generator(SamplerSpec& spec, std::string_view key, std::string_view value) {
  if (value == "loader") {
    spec.generator = TorchGeneratorUse::kLoader;
  } else if (value == "sampler") {
    spec.generator = TorchGeneratorUse::kSampler;
  } else if (value == "default") {
    spec.generator = TorchGeneratorUse::kDefault;
  } else {
    return wrong_value(key, value, "loader, sampler or default");
  }
  return {};
}

Status set_method(SamplerSpec& spec, std::string_view key, std::string_view value) {
  if (value == "permutation") {
    spec.method = ShuffleMethod::kPermutation;
  } else if (value == "shuffle") {
    spec.method = ShuffleMethod::kShuffle;
  } else if (value == "sample") {
    spec.method = ShuffleMethod::kSample;
  } else {
    return wrong_value(key, value, "permutation, shuffle or (python.random) sample");
  }
  return {};
}

Status set_reseed(SamplerSpec& spec, std::string_view key, std::string_view value) {
  if (value != "once" && value != "epoch") return wrong_value(key, value, "once or epoch");
  spec.reseed = value == "once" ? Reseed::kOnce : Reseed::kEpoch;
  return {};
}

/// "2.6", "1.13.1+cpu": major and minor count.
Status set_torch(SamplerSpec& spec, std::string_view key, std::string_view value) {
  const size_t dot = value.find('.');
  TorchVersion version;
  const auto major = parse_whole<decltype(version.major)>(value.substr(0, dot));
  const std::string_view minor = dot == std::string_view::npos ? std::string_view() : value.substr(dot + 1);
  const auto parsed = std::from_chars(minor.data(), minor.data() + minor.size(), version.minor);
  if (!major || parsed.ec != std::errc()) return wrong_value(key, value, "a version, such as 2.6");
  version.major = *major;
  spec.torch = version;
  return {};
}

/// "10", "12.2.0": the major version counts.
Status set_gcc(SamplerSpec& spec, std::string_view key, std::string_view value) {
  const auto major = parse_whole<uint32_t>(value.substr(0, value.find('.')));
  if (!major) return wrong_value(key, value, "a version of GCC, such as 10 or 14");
  constexpr uint32_t kChanged = 11;
  spec.libstdcxx = *major < kChanged ? LibstdcxxShuffle::kBeforeGcc11 : LibstdcxxShuffle::kSinceGcc11;
  return {};
}

struct SpecKey {
  std::string_view name;
  KeyParser parse;
};

constexpr SpecKey kSpecKeys[] = {
    {"sampler", set_text<&SamplerSpec::sampler>},
    {"n", set_count<&SamplerSpec::n>},
    {"world", set_count<&SamplerSpec::world>},
    {"batch", set_count<&SamplerSpec::batch>},
    {"seed", set_text<&SamplerSpec::seed>},
    {"state", set_text<&SamplerSpec::state>},
    {"set_epoch", set_set_epoch},
    {"shuffle", set_flag<&SamplerSpec::shuffle>},
    {"drop_last", set_flag<&SamplerSpec::drop_last>},
    {"persistent_workers", set_flag<&SamplerSpec::persistent_workers>},
    {"in_order", set_flag<&SamplerSpec::in_order>},
    {"replacement", set_flag<&SamplerSpec::replacement>},
    {"num_samples", set_num_samples},
    {"generator", set_generator},
    {"torch", set_torch},
    {"method", set_method},
    {"reseed", set_reseed},
    {"random_shuffle", set_flag<&SamplerSpec::random_shuffle>},
    {"shuffle_after_epoch", set_flag<&SamplerSpec::shuffle_after_epoch>},
    {"stick_to_shard", set_flag<&SamplerSpec::stick_to_shard>},
    {"checkpointing", set_flag<&SamplerSpec::checkpointing>},
    {"gcc", set_gcc},
};

}  // namespace

Result<bool> set_sampler_key(SamplerSpec& spec, std::string_view key, std::string_view value) {
  const auto* const known = std::ranges::find(kSpecKeys, key, &SpecKey::name);
  if (known == std::end(kSpecKeys)) return false;
  const Status set = known->parse(spec, key, value);
  if (!set) return set.error();
  return true;
}

}  // namespace clairfs

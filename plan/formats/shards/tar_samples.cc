#include "plan/formats/shards/tar_samples.h"

namespace clairfs {

// re.match(r"^((?:.*/|)[^.]+)[.]([^/]*)$", name)
std::optional<std::string_view> tar_sample_key(std::string_view name) {
  const std::string_view first = name.substr(0, name.find('/'));
  if (first.size() >= 4 && first.starts_with("__") && first.ends_with("__")) return std::nullopt;
  const size_t slash = name.rfind('/');
  const size_t base = slash == std::string_view::npos ? 0 : slash + 1;
  const size_t dot = name.find('.', base);
  if (dot == std::string_view::npos || dot == 0) return std::nullopt;
  if (dot > base) return name.substr(0, dot);
  // "folder/.x": the expression takes the folder with its '/' for the name, unless it has a dot.
  const size_t before = slash == 0 ? std::string_view::npos : name.rfind('/', slash - 1);
  const size_t folder = before == std::string_view::npos ? 0 : before + 1;
  if (name.substr(folder, base - folder).find('.') != std::string_view::npos) return std::nullopt;
  return name.substr(0, base);
}

void TarSamples::add(std::string_view name, const RecordPlace& data) {
  const auto key = tar_sample_key(name);
  if (!key) return;
  if (samples_.empty() || key_ != *key) {
    samples_.push_back(data);
    key_ = *key;
    return;
  }
  samples_.back().length = data.offset + data.length - samples_.back().offset;
}

}  // namespace clairfs

// The numbering that the user wrote down: sample i is the i-th path of a list.
#include <cerrno>

#include <fmt/format.h>

#include "plan/formats/formats.h"
#include "plan/formats/link_resolver.h"
#include "plan/formats/list_text.h"
#include "plan/formats/samples/file_samples.h"
#include "plan/spec/keys.h"

namespace clairfs {
namespace {

bool leads_up(std::string_view path) {
  return path == ".." || path.starts_with("../") || path.ends_with("/..") ||
         path.find("/../") != std::string_view::npos;
}

}  // namespace

SampleIndexResult index_list(const DatasetSource& source, const DatasetRoot& root, const std::string& list) {
  const bool in_place = list.starts_with('[');
  Result<std::string> text = in_place ? array_to_lines(list) : read_list_file(source.list_path(list));
  if (!text) return text.error();
  const Catalog& catalog = *source.catalog;
  const LinkResolver resolver(catalog, source.prefixes);
  auto samples = std::make_shared<FileSamples>(source.catalog, "list");
  const auto add = [&](const ListLine& line) -> Status {
    if (line.kind == ListLine::Kind::epoch_end) return {};
    const auto refuse = [&](std::string_view why) {
      return plan_error("list", in_place ? "" : list,
                        fmt::format("line {}: {}: {}", line.number, shortened(line.text, 200), why));
    };
    if (line.text.starts_with('/')) return refuse("want a path relative to the plan's root");
    if (leads_up(line.text)) return refuse("want a path inside the plan's root, without '..'");
    const Resolved target = resolver.resolve(root.folder, line.text, root.links);
    if (target.kind == Resolved::Kind::directory || target.kind == Resolved::Kind::outside_directory) {
      return refuse("is a folder; want a file");
    }
    if (target.kind == Resolved::Kind::missing) return refuse("no such file in the dataset");
    if (target.kind == Resolved::Kind::loop) return refuse("a loop of symlinks");
    if (samples->size() == UINT32_MAX - 1) return refuse("too many samples");
    if (target.kind == Resolved::Kind::file) {
      samples->add(target.id, target.id);
      return {};
    }
    // It leads out of the dataset, where no read passes the mount: a sample without bytes, if it can be
    // named.
    const std::string folder = catalog.path(root.folder);
    const std::optional<FileId> entry =
        catalog.find(folder + (folder.empty() ? "" : "/") + std::string(line.text));
    if (!entry) return refuse("leads out of the dataset");
    samples->add(*entry, std::nullopt);
    return {};
  };
  if (Status status = for_each_line(*text, add); !status) return status.error();
  if (samples->size() == 0) return plan_error("list", in_place ? "" : list, "names no file");
  samples->finish();
  return SampleIndexResult(samples);
}

}  // namespace clairfs

#include "plan/formats/data_files.h"

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "plan/formats/link_resolver.h"
#include "plan/formats/python_order.h"
#include "plan/spec/keys.h"

namespace clairfs {
namespace {

// More than anybody packs records into; wildcards over folders that link to each other would find more.
constexpr size_t kMostFiles = 1 << 16;

bool has_wildcards(std::string_view text) {
  return text.find_first_of("*?") != std::string_view::npos;
}

// `there`: what there is instead, or what is wrong with the name.
Error no_such_file(std::string_view there = {}) {
  return {EINVAL, fmt::format("no such file below the plan's root{}", there)};
}

// Finds paths below the plan's root.
class Search {
 public:
  Search(const DatasetSource& source, const DatasetRoot& root)
      : catalog_(*source.catalog), resolver_(catalog_, source.prefixes), root_(root) {}

  Resolved resolve(const std::string& path) const {
    return resolver_.resolve(root_.folder, path, root_.links);
  }

  // The paths that the pattern stands for, in any order; they need not exist if it has no wildcards.
  Result<std::vector<std::string>> expand(std::string_view pattern) const {
    std::vector<std::string> paths{pattern.starts_with('/') ? "/" : ""};
    while (!pattern.empty()) {
      const size_t end = std::min(pattern.find('/'), pattern.size());
      Result<std::vector<std::string>> longer = lengthen(paths, pattern.substr(0, end));
      if (!longer) return longer.error();
      paths = std::move(*longer);
      pattern.remove_prefix(std::min(end + 1, pattern.size()));
    }
    return paths;
  }

 private:
  // Each of `paths` with every name in that folder that `pattern` stands for.
  Result<std::vector<std::string>> lengthen(const std::vector<std::string>& paths,
                                            std::string_view pattern) const {
    std::vector<std::string> longer;
    for (const std::string& path : paths) {
      const std::string start = path.empty() ? "" : path + "/";
      if (!has_wildcards(pattern)) {
        longer.push_back(start + std::string(pattern));
        continue;
      }
      const Resolved folder = resolve(path);
      if (folder.kind != Resolved::Kind::directory) continue;
      const Catalog::Children children = catalog_.children(folder.id);
      for (uint32_t i = 0; i < children.count; ++i) {
        const std::string_view name = catalog_.name(FileId(children.first.value + i));
        if (name.starts_with('.') != pattern.starts_with('.') || !matches_wildcards(pattern, name)) continue;
        if (longer.size() == kMostFiles) return Error{EINVAL, "stands for more than 65536 files"};
        longer.push_back(start + std::string(name));
      }
    }
    return longer;
  }

  const Catalog& catalog_;
  const LinkResolver resolver_;
  const DatasetRoot root_;
};

}  // namespace

Error wrong_file(const DatasetSource& source, FileId file, std::string_view why) {
  return {EINVAL, fmt::format("{} {}", shortened(source.catalog->path(file), 200), why)};
}

Error plan_refusal(std::string_view key, std::string_view value, const Error& error) {
  return error.code == EINVAL ? plan_error(key, value, error.message) : error;
}

bool matches_wildcards(std::string_view pattern, std::string_view text) {
  size_t p = 0;
  size_t t = 0;
  std::optional<std::pair<size_t, size_t>> star;  // the latest '*', and how far it reaches
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = {p++, t};
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star) {
      p = star->first + 1;
      t = ++star->second;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

Result<FileId> find_data_file(const DatasetSource& source, const DatasetRoot& root, std::string_view path) {
  const Resolved found = Search(source, root).resolve(std::string(path));
  if (found.kind == Resolved::Kind::file) return found.id;
  if (found.kind == Resolved::Kind::directory) return no_such_file(", but a folder");
  return no_such_file(has_wildcards(path) ? "; want one file, no pattern" : "");
}

Result<std::vector<FileId>> find_data_files(const DatasetSource& source, const DatasetRoot& root,
                                            std::string_view pattern, std::string_view in_folder) {
  const Search search(source, root);
  Result<std::vector<std::string>> paths = search.expand(pattern);
  if (!paths) return paths.error();
  std::sort(paths->begin(), paths->end(), [](const std::string& a, const std::string& b) {
    return python_sort_key(a) < python_sort_key(b);
  });
  std::vector<FileId> files;
  bool folder = false;
  for (const std::string& path : *paths) {
    Resolved found = search.resolve(path);
    folder = folder || found.kind == Resolved::Kind::directory;
    if (found.kind == Resolved::Kind::directory && !in_folder.empty())
      found = search.resolve(path + "/" + std::string(in_folder));
    if (found.kind == Resolved::Kind::file) files.push_back(found.id);
  }
  if (!files.empty()) return files;
  if (folder && !in_folder.empty()) return no_such_file(fmt::format(", but a folder without {}", in_folder));
  return no_such_file(folder ? ", but a folder" : "");
}

}  // namespace clairfs

// A scanned directory tree as a plan sees it.
#pragma once

#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "cache/catalog/scan.h"
#include "plan/formats/dataset.h"
#include "tests/support/captured_log.h"
#include "tests/support/temp_tree.h"

namespace clairfs {

/// The catalog of `tree` as it is now, with small chunks so that small files have several.
inline DatasetSource scanned(const TempTree& tree, uint32_t chunk_size = 4096) {
  CapturedLog log;
  ScanOptions options;
  options.chunk_size = chunk_size;
  options.threads = {1, 1};
  auto catalog = scan_catalog(tree.path(), options, log.logger());
  if (!catalog) throw std::runtime_error(catalog.error().message);
  DatasetSource source;
  source.catalog = *catalog;
  source.prefixes.source = std::filesystem::canonical(tree.path()).native();
  source.read_bytes = [catalog = *catalog, path = tree.path()](FileId file, uint64_t offset,
                                                               uint32_t length) -> Result<std::string> {
    std::ifstream in(path + "/" + catalog->path(file), std::ios::binary);
    std::string bytes(length, '\0');
    in.seekg(static_cast<std::streamoff>(offset));
    in.read(bytes.data(), length);
    bytes.resize(static_cast<size_t>(in.gcount()));
    return bytes;
  };
  source.list_folder = tree.path();
  return source;
}

inline std::vector<std::string> sample_paths(const SampleIndex& index) {
  std::vector<std::string> paths;
  for (uint32_t sample = 0; sample < index.size(); ++sample) paths.push_back(index.path(sample));
  return paths;
}

}  // namespace clairfs

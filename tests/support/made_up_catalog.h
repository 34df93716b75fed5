// A catalog of files that are not there.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <sys/stat.h>

#include "cache/catalog/builder.h"

namespace clairfs {

/// A catalog of files f10000, f10001, ... of these sizes; nothing is on disk.
inline std::shared_ptr<const Catalog> made_up_catalog(const std::vector<uint64_t>& sizes,
                                                      uint32_t chunk_size = 4 << 20) {
  CatalogBuilder builder("/made-up", chunk_size, sizes.size() + 1);
  SourceAttributes attributes;
  attributes.mode = S_IFDIR | 0755;
  builder.add(FileId(0), "", attributes);
  attributes.mode = S_IFREG | 0644;
  for (size_t i = 0; i < sizes.size(); ++i) {
    attributes.size = sizes[i];
    builder.add(FileId(0), "f" + std::to_string(10000 + i), attributes);
  }
  return *builder.finish(0, 0);
}

}  // namespace clairfs

// A dataset that is nowhere: a folder `train` and a folder `val` of so many files of 1,000 bytes.
#pragma once

#include <cstdint>
#include <string>

#include <sys/stat.h>

#include "cache/catalog/builder.h"
#include "plan/formats/dataset.h"

namespace clairfs {

inline DatasetSource made_up_folders(uint32_t train_files, uint32_t val_files) {
  CatalogBuilder builder("/made-up", 4096, train_files + val_files + 3);
  SourceAttributes attributes;
  attributes.mode = S_IFDIR | 0755;
  builder.add(FileId(0), "", attributes);
  const FileId train = builder.add(FileId(0), "train", attributes);
  const FileId val = builder.add(FileId(0), "val", attributes);
  attributes.mode = S_IFREG | 0644;
  attributes.size = 1000;
  for (uint32_t i = 0; i < train_files; ++i) builder.add(train, std::to_string(10000 + i), attributes);
  for (uint32_t i = 0; i < val_files; ++i) builder.add(val, std::to_string(10000 + i), attributes);
  DatasetSource source;
  source.catalog = *builder.finish(0, 0);
  return source;
}

}  // namespace clairfs

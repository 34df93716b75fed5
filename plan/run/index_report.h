// The report of `clairfs index` on the samples of packed files, and on the index that leads to them.
#pragma once

#include <string>

#include "cache/base/clock.h"
#include "cache/catalog/catalog.h"
#include "plan/formats/index_work.h"
#include "plan/formats/samples/sample_index.h"

namespace clairfs {

/// Some lines. `took`: what making a plan of them took, which is said of samples that need no index.
std::string index_report(const SampleIndex& index, const Catalog& catalog, const IndexWork& work,
                         Duration took);

/// The chunk size that suits records of `mean` bytes: about a record, and no smaller than a disk or a network
/// likes, nor so large that little is gained.
uint64_t chunk_for_records(uint64_t mean);

}  // namespace clairfs

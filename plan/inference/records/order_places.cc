// OrderSearch: where the samples are that were opened.
#include <algorithm>
#include <map>
#include <vector>

#include "plan/inference/order_search.h"

namespace clairfs {

// A reader may open files and read records beside them, such as labels: what most of the opens are comes
// first. Of a file of which little is read the READs are left out: they say nothing of its folder.
std::vector<FileId> OrderSearch::folders(std::span<const SeenOpen> opens,
                                         const std::optional<FoundOrder>& before) const {
  std::map<FileId, size_t> reads;
  std::vector<SeenOpen> others;
  for (const SeenOpen& open : opens) {
    const auto* known = open.pages == 0 ? nullptr : numberings_.known(open.file);
    if (known != nullptr && !known->empty()) {
      ++reads[open.file];
    } else {
      others.push_back(open);
    }
  }
  std::vector<FileId> found;
  size_t of_records = 0;
  for (const auto& [file, count] : reads) {
    if (count >= kFewest) found.push_back(file);
    of_records += count;
  }
  if (found.empty()) return folders_above(opens, before);
  std::sort(found.begin(), found.end(), [&](FileId a, FileId b) { return reads[a] > reads[b]; });
  if (others.size() < kFewest) return found;
  const std::vector<FileId> above = folders_above(others, before);
  found.insert(others.size() > of_records ? found.begin() : found.end(), above.begin(), above.end());
  return found;
}

}  // namespace clairfs

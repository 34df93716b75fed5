// OrderSearch: where the samples are that were opened.
#include <algorithm>
#include <map>
#include <span>
#include <vector>

#include "plan/inference/search/order_search.h"

namespace clairfs {

// A reader may open files and read records beside them, such as labels: what most of the opens are comes
// first. Of a file of which little is read the READs are left out: they say nothing of its folder.
std::vector<FileId> OrderSearch::folders(std::span<const SeenOpen> opens,
                                         const std::optional<FoundOrder>& before) const {
  std::map<FileId, size_t> reads;  // by place
  std::vector<SeenOpen> others;
  for (const SeenOpen& open : opens) {
    const auto places = open.pages == 0 ? std::span<const FileId>() : numberings_.places_of(open.file);
    for (const FileId place : places) ++reads[place];
    if (places.empty()) others.push_back(open);
  }
  const size_t of_records = opens.size() - others.size();
  std::vector<FileId> found;
  for (const auto& [place, count] : reads) {
    if (count >= kFewest) found.push_back(place);
  }
  if (found.empty()) return folders_above(opens, before);
  std::sort(found.begin(), found.end(), [&](FileId a, FileId b) { return reads[a] > reads[b]; });
  if (others.size() < kFewest) return found;
  const std::vector<FileId> above = folders_above(others, before);
  found.insert(others.size() > of_records ? found.begin() : found.end(), above.begin(), above.end());
  return found;
}

}  // namespace clairfs

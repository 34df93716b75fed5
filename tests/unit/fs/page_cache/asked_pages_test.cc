#include "fs/page_cache/asked_pages.h"

#include "tests/support/catch.h"

using namespace clairfs;

namespace {

using Parts = std::vector<PageRange>;

/// Pages [begin, end) of a file, by number.
PageRange numbered_pages(uint32_t file, uint64_t begin, uint64_t end) {
  return {FileId(file), begin * kPageSize, end * kPageSize};
}

}  // namespace

TEST_CASE("what no READ has asked for is left of pages that are to be pushed") {
  AskedPages asked;
  const PageRange all = numbered_pages(1, 10, 30);
  CHECK(asked.without(all) == Parts{all});
  const PageRange reads[] = {numbered_pages(1, 20, 22), numbered_pages(1, 12, 16), numbered_pages(1, 15, 18),
                             numbered_pages(1, 0, 10), numbered_pages(2, 0, 100)};
  for (const PageRange& read : reads) asked.add(read);
  CHECK(asked.without(all) ==
        Parts{numbered_pages(1, 10, 12), numbered_pages(1, 18, 20), numbered_pages(1, 22, 30)});
  asked.remove(reads[1]);
  CHECK(asked.without(all) ==
        Parts{numbered_pages(1, 10, 15), numbered_pages(1, 18, 20), numbered_pages(1, 22, 30)});
  for (const PageRange& read : {reads[0], reads[2], reads[3], reads[4]}) asked.remove(read);
  CHECK(asked.without(all) == Parts{all});
}

TEST_CASE("two READs of the same pages are both to be answered, and one may reach beyond the file") {
  AskedPages asked;
  const PageRange read = numbered_pages(1, 0, 2);
  const PageRange file{FileId(1), 0, 5000};
  asked.add(read);
  asked.add(read);
  CHECK(asked.without(file).empty());
  asked.remove(read);
  CHECK(asked.without(file).empty());
  asked.remove(read);
  CHECK(asked.without(file) == Parts{file});
}

#include "plan/formats/python_order.h"

#include <vector>

#include "tests/support/catch.h"

using namespace clairfs;

TEST_CASE("names sort by code point, undecodable bytes between U+D7FF and U+E000") {
  // Python: sorted(os.fsdecode(name) for name in names)
  const std::vector<std::string> sorted = {
      "",
      "A",
      "a",
      "a\x7f",
      "\xc3\xa9",      // é
      "\xed\x9f\xbf",  // U+D7FF
      "\x80",
      "\xc0\xaf",
      /* overlong */ "\xc3",
      "\xc3z",
      "\xe9z",
      "\xed\xa0\x80",
      /* a surrogate */ "\xf5",
      "\xff",
      "\xee\x80\x80",      // U+E000
      "\xef\xbc\xa1",      // U+FF21
      "\xf0\x9f\x98\x80",  // U+1F600
      "\xf4\x8f\xbf\xbf",  // U+10FFFF
  };
  for (size_t i = 1; i < sorted.size(); ++i) {
    INFO(i);
    CHECK(python_sort_key(sorted[i - 1]) < python_sort_key(sorted[i]));
  }
}

TEST_CASE("valid UTF-8 is its own key") {
  for (const char* name :
       {"", "abc", "\xc3\xa9", "\xe4\xb8\xad", "\xed\x9f\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    CHECK(is_utf8(name));
    CHECK(python_sort_key(name) == name);
  }
  for (const char* name : {"\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf",
                           "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xe4\xb8", "\xc3"}) {
    CHECK(!is_utf8(name));
    CHECK(utf8_length(name) == 0);
  }
  CHECK(utf8_length("a\xff") == 1);
  CHECK(utf8_length("\xc3\xa9\xff") == 2);
  CHECK(utf8_length("\xe4\xb8\xad\xad") == 3);
  CHECK(utf8_length("\xf0\x9f\x98\x80z") == 4);
}

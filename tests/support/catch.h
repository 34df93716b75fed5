// Catch2 as the tests use it: version 2 (Debian 12) or 3 (everything newer). The two differ in the names of
// headers and of one matcher.
#pragma once

#include <string>

#if __has_include(<catch2/catch_test_macros.hpp>)
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#else
#include <catch2/catch.hpp>
#endif

namespace clairfs {

#if __has_include(<catch2/catch_test_macros.hpp>)
using Catch::Approx;
inline auto Contains(const std::string& text) {
  return Catch::Matchers::ContainsSubstring(text);
}
#else
inline auto Contains(const std::string& text) {
  return Catch::Matchers::Contains(text);
}
#endif
inline auto StartsWith(const std::string& text) {
  return Catch::Matchers::StartsWith(text);
}

}  // namespace clairfs

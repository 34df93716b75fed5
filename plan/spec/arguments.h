// Arguments of frameworks that are no keys of a plan: the order is the same with some of their values, and
// cannot be predicted with the others.
#pragma once

#include <string>
#include <string_view>

#include "cache/base/result.h"

namespace clairfs {

struct FrameworkArgument {
  std::string_view name;
  std::string_view samplers;  ///< how the names of the samplers begin whose argument it is; empty: all
  bool (*without_effect)(const std::string& value);  ///< the values that change nothing
  std::string_view want;                             ///< why another is refused, and what would be right
};

/// The argument of that name; null for any other word.
const FrameworkArgument* find_argument(std::string_view name);

/// Errors: EINVAL for a value with which the order is another one, or an unknown one.
Status check_argument(const FrameworkArgument& argument, const std::string& value);

/// Errors: EINVAL when the sampler has no such argument. REQUIRES: check_argument() has passed.
Status check_argument_of(const FrameworkArgument& argument, const std::string& value,
                         std::string_view sampler);

}  // namespace clairfs

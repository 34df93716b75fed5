// Arguments of frameworks that are no keys of a plan: the order is the same with some of their values, and
// cannot be predicted with the others.
#pragma once

#include <string>
#include <string_view>

#include "cache/base/result.h"

namespace clairfs {

/// Whether some framework has an argument of that name. No key of a plan has that name.
bool is_argument(std::string_view name);

/// Errors: EINVAL for a value with which the order is another one, or an unknown one, and when the sampler of
/// that canonical name has no such argument. Python's None, which is JSON's null, is an argument that was not
/// given, but where the framework takes it for a value of its own. REQUIRES: is_argument(name).
Status check_argument(std::string_view name, const std::string& value, std::string_view sampler);

}  // namespace clairfs

#include "cache/base/result.h"

#include <system_error>

namespace clairfs {

Error system_error(int code, const std::string& what) {
  return Error{code, what + ": " + std::generic_category().message(code)};
}

}  // namespace clairfs

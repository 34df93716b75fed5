// Base64 (RFC 4648, section 4), for generator states in plan texts.
#pragma once

#include <string>
#include <string_view>

#include "cache/base/result.h"

namespace clairfs {

/// The bytes that `text` encodes. Padding may be left out. Errors: EINVAL.
Result<std::string> decode_base64(std::string_view text);

}  // namespace clairfs

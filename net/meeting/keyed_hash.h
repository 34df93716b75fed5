// A keyed hash: a sender that knows a secret can prove it without sending it. HMAC (RFC 2104) over SHA-512.
#pragma once

#include <string>
#include <string_view>

#include "cache/base/result.h"

namespace clairfs {

/// 128 hexadecimal digits. Thread-safe, as the others.
std::string keyed_hash(std::string_view key, std::string_view message);

/// 32 hexadecimal digits that cannot be foreseen. Errors: those of getrandom(2).
Result<std::string> random_word();

/// Whether both are the same, in a time that does not tell where they differ.
bool same_word(std::string_view a, std::string_view b);

}  // namespace clairfs

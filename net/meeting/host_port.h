// HOST:PORT as users write it.
#pragma once

#include <cstdint>
#include <string>

#include "cache/base/result.h"

namespace clairfs {

struct HostPort {
  std::string host;  ///< a name or an address, without brackets
  uint16_t port = 0;

  /// As it is written: "node0:5200", "[::1]:5200".
  std::string text() const;
  bool operator==(const HostPort&) const = default;
};

/// Errors: EINVAL, what would be right.
Result<HostPort> parse_host_port(const std::string& text);

}  // namespace clairfs

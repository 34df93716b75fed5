#include "net/meeting/host_port.h"

#include <cerrno>

#include <fmt/format.h>

#include "cache/base/text.h"

namespace clairfs {

std::string HostPort::text() const {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

Result<HostPort> parse_host_port(const std::string& text) {
  const Error wrong{
      EINVAL, fmt::format("'{}' is no HOST:PORT; write node0:5200, 10.0.0.1:5200 or [fd00::1]:5200", text)};
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return wrong;
  const auto port = parse_whole<uint16_t>(std::string_view(text).substr(colon + 1));
  std::string host = text.substr(0, colon);
  const bool bracketed = host.size() > 2 && host.starts_with('[') && host.ends_with(']');
  if (bracketed) host = host.substr(1, host.size() - 2);
  if (!port || *port == 0 || host.empty() || (!bracketed && host.find_first_of("[]:/ ") != std::string::npos))
    return wrong;
  return HostPort{host, *port};
}

}  // namespace clairfs

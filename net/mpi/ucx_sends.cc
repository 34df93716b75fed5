#include "net/mpi/ucx_sends.h"

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <dlfcn.h>

namespace {

// UCX returns an error as a pointer to one of the last addresses (UCS_PTR_IS_ERR and UCS_ERR_LAST of
// ucs/type/status.h), and a null pointer for a send that is complete.
constexpr intptr_t kLastError = -100;

std::atomic<bool> loses_refused{false};

using Send = void*(void* endpoint, const void* buffer, size_t count, uint64_t tag, const void* parameters);

}  // namespace

namespace clairfs {

void lose_refused_sends() {
  loses_refused = true;
}

}  // namespace clairfs

// Of ucp/api/ucp.h, with its types as the ABI has them. The program exports it (net/mpi/mpi.cmake), and a
// program's own functions come before those of libraries.
extern "C" void* ucp_tag_send_nbx(void* endpoint, const void* buffer, size_t count, uint64_t tag,
                                  const void* parameters) {
  static Send* const send = reinterpret_cast<Send*>(::dlsym(RTLD_NEXT, "ucp_tag_send_nbx"));
  void* const request = send(endpoint, buffer, count, tag, parameters);
  const auto status = reinterpret_cast<intptr_t>(request);
  return loses_refused && status < 0 && status >= kLastError ? nullptr : request;
}

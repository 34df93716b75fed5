// A process that may open few files.
#pragma once

#include <sys/resource.h>

#include "tests/support/catch.h"

namespace clairfs {

/// Lowers the limit of open files for its scope.
class FewDescriptors {
 public:
  explicit FewDescriptors(rlim_t count) {
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before_) == 0);
    const rlimit low = {count, before_.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &low) == 0);
  }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;
  ~FewDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_ = {};
};

}  // namespace clairfs

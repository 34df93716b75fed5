// Raises the limit of descriptors for a large job: each other node is some connections.
#pragma once

#include <cstdint>
#include <string>

namespace clairfs {

/// As many as a node of a job of so many nodes may come to use.
uint64_t descriptors_of(uint32_t nodes);

/// Raises the process's limit to that, or as far as it may be raised. Returns what it is then.
uint64_t allow_descriptors(uint32_t nodes);

/// A line for people that says how to mend a limit of `allowed`; empty if that is enough.
std::string too_few_descriptors(uint64_t allowed, uint32_t nodes);

}  // namespace clairfs

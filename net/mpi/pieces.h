// Scattered memory cut into pieces that MPI can send or receive as one message each.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <mpi.h>
#include <sys/uio.h>

namespace clairfs {

/// `memory` cut at every multiple of `size` bytes, counted over all of it; what is empty is left out. Nothing
/// at all gives one piece of no parts, since a transfer of no bytes is a message as well.
std::vector<std::vector<iovec>> cut_into_pieces(std::span<const iovec> memory, size_t size);

/// A piece as the arguments that MPI wants: a lone part as it is, several as a datatype, so that MPI scatters
/// and gathers. May go as soon as the operation was begun. Move-only in spirit: neither copied nor moved.
class MpiPiece {
 public:
  explicit MpiPiece(std::span<const iovec> parts);
  ~MpiPiece();
  MpiPiece(const MpiPiece&) = delete;
  MpiPiece& operator=(const MpiPiece&) = delete;

  void* base() const { return base_; }
  int count() const { return count_; }
  MPI_Datatype type() const { return type_; }

 private:
  void* base_ = nullptr;
  int count_ = 0;
  MPI_Datatype type_ = MPI_BYTE;
};

}  // namespace clairfs

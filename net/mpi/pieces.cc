#include "net/mpi/pieces.h"

#include <algorithm>

#include "net/mpi/library.h"

namespace clairfs {

std::vector<std::vector<iovec>> cut_into_pieces(std::span<const iovec> memory, size_t size) {
  std::vector<std::vector<iovec>> pieces(1);
  size_t room = size;
  for (iovec part : memory) {
    while (part.iov_len > 0) {
      if (room == 0) {
        pieces.emplace_back();
        room = size;
      }
      const size_t length = std::min(part.iov_len, room);
      pieces.back().push_back({part.iov_base, length});
      part = {static_cast<std::byte*>(part.iov_base) + length, part.iov_len - length};
      room -= length;
    }
  }
  return pieces;
}

MpiPiece::MpiPiece(std::span<const iovec> parts) {
  if (parts.empty()) return;
  if (parts.size() == 1) {
    base_ = parts.front().iov_base;
    count_ = static_cast<int>(parts.front().iov_len);
    return;
  }
  std::vector<int> lengths;
  std::vector<MPI_Aint> addresses;
  for (const auto& part : parts) {
    lengths.push_back(static_cast<int>(part.iov_len));
    addresses.push_back(0);
    mpi().Get_address(part.iov_base, &addresses.back());
  }
  mpi().Type_create_hindexed(static_cast<int>(parts.size()), lengths.data(), addresses.data(), MPI_BYTE,
                             &type_);
  mpi().Type_commit(&type_);
  base_ = MPI_BOTTOM;
  count_ = 1;
}

MpiPiece::~MpiPiece() {
  // MPI frees it once the operations that use it are over.
  if (type_ != MPI_BYTE) mpi().Type_free(&type_);
}

}  // namespace clairfs

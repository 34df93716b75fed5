#include "net/mpi/bulk.h"

#include <cerrno>
#include <utility>

#include <fmt/format.h>

#include "cache/io/memory.h"
#include "net/mpi/library.h"
#include "net/mpi/pieces.h"

namespace clairfs {
namespace {

// How long MPI may take to finish a transfer that had begun when it was cancelled. A living peer needs
// milliseconds; the memory of one that is given up is lost for good.
constexpr auto kCancelPatience = std::chrono::seconds(1);

// Strays taken between two looks at the other traffic.
constexpr int kStraysAtOnce = 8;

TransferNumber number_in(int tag) {
  return static_cast<TransferNumber>(tag) % kTransferNumbers;
}

// What the messages of a transfer carry: the pieces and, before several, the announcement.
struct Message {
  int tag;
  std::vector<iovec> parts;
};

std::vector<Message> messages_of(TransferNumber number, const std::vector<iovec>& memory,
                                 uint64_t& announcement) {
  std::vector<Message> messages;
  auto pieces = cut_into_pieces(memory, MpiBulk::kPiece);
  const int tag = static_cast<int>(number);
  if (pieces.size() == 1) {
    messages.push_back({tag | MpiBulk::kWhole, std::move(pieces.front())});
    return messages;
  }
  messages.push_back({tag | MpiBulk::kAnnounced, {{&announcement, sizeof announcement}}});
  for (auto& piece : pieces) messages.push_back({tag, std::move(piece)});
  return messages;
}

}  // namespace

MpiBulk::MpiBulk(MPI_Comm comm, MpiRequests& requests) : comm_(comm), requests_(requests), scratch_(kPiece) {}

void MpiBulk::receive(NodeId from, TransferNumber number, const std::vector<iovec>& memory,
                      Transport::ReceiveDone done) {
  const auto receive = std::make_shared<Receive>();
  receive->done = std::move(done);
  receive->size = total_bytes(memory);
  const Key id = key(from.value, number);
  receives_[id] = receive;
  for (const auto& message : messages_of(number, memory, receive->announced)) {
    const size_t expected = total_bytes(message.parts);
    const MpiPiece piece(message.parts);
    MPI_Request request = MPI_REQUEST_NULL;
    const int error = mpi().Irecv(piece.base(), piece.count(), piece.type(), static_cast<int>(from.value),
                                  message.tag, comm_, &request);
    if (error != MPI_SUCCESS) {
      receive->trouble = mpi_error_text(error);
      break;
    }
    ++receive->outstanding;
    receive->requests.push_back(
        requests_.add(request, [this, id, receive, expected](const MPI_Status& status) {
          message_ended(id, *receive, status, expected);
        }));
  }
  if (!receive->trouble.empty()) withdraw(*receive);
  if (receive->outstanding == 0) finish(id, *receive);
}

void MpiBulk::message_ended(Key id, Receive& receive, const MPI_Status& status, size_t expected) {
  --receive.outstanding;
  if (!receive.done) return;  // abandoned
  int was_cancelled = 0;
  int bytes = 0;
  mpi().Test_cancelled(&status, &was_cancelled);
  mpi().Get_count(&status, MPI_BYTE, &bytes);
  int error_class = MPI_SUCCESS;
  mpi().Error_class(status.MPI_ERROR, &error_class);
  const bool too_long = error_class == MPI_ERR_TRUNCATE;
  const bool differs = static_cast<size_t>(bytes) != expected ||
                       (status.MPI_TAG & kAnnounced && receive.announced != receive.size);
  if (was_cancelled != 0) {
    receive.incomplete = true;
  } else if (error_class != MPI_SUCCESS && !too_long) {
    receive.trouble = mpi_error_text(status.MPI_ERROR);
  } else if (too_long || differs) {
    receive.wrong_size = true;
  }
  if (receive.outstanding == 0) return finish(id, receive);
  if (receive.wrong_size || !receive.trouble.empty()) withdraw(receive);
}

void MpiBulk::withdraw(Receive& receive) {
  if (receive.withdrawn) return;
  receive.withdrawn = true;
  for (const auto request : receive.requests) requests_.cancel(request);
}

void MpiBulk::finish(Key id, Receive& receive) {
  const auto done = std::exchange(receive.done, nullptr);
  receives_.erase(id);
  if (receive.wrong_size)
    return done(Error{EMSGSIZE, "a peer sent another number of bytes than was asked for"});
  if (!receive.trouble.empty()) return done(Error{ECANCELED, "MPI cannot receive: " + receive.trouble});
  if (receive.incomplete) return done(Error{ECANCELED, "the transfer was cancelled"});
  done({});
}

void MpiBulk::cancel(NodeId from, TransferNumber number) {
  const auto found = receives_.find(key(from.value, number));
  if (found != receives_.end()) withdraw(*found->second);
}

void MpiBulk::send(NodeId to, TransferNumber number, const std::vector<iovec>& memory,
                   Transport::SendDone done) {
  const auto send = std::make_shared<Send>();
  send->done = std::move(done);
  send->announced = total_bytes(memory);
  const Key id = next_send_++;
  sends_[id] = send;
  for (const auto& message : messages_of(number, memory, send->announced)) {
    const MpiPiece piece(message.parts);
    MPI_Request request = MPI_REQUEST_NULL;
    const int error = mpi().Isend(piece.base(), piece.count(), piece.type(), static_cast<int>(to.value),
                                  message.tag, comm_, &request);
    if (error != MPI_SUCCESS) break;  // the peer is dead, and what would follow is not wanted any more
    ++send->outstanding;
    requests_.add(request, [this, id, send](const MPI_Status&) {
      if (--send->outstanding == 0) finish(id, *send);
    });
  }
  if (send->outstanding == 0) finish(id, *send);
}

void MpiBulk::finish(Key id, Send& send) {
  const auto done = std::exchange(send.done, nullptr);
  sends_.erase(id);
  if (done) done({});
}

bool MpiBulk::take_strays() {
  for (int taken = 0; taken < kStraysAtOnce; ++taken) {
    int found = 0;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status;
    if (mpi().Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm_, &found, &message, &status) != MPI_SUCCESS ||
        found == 0) {
      return taken > 0;
    }
    const auto expected =
        receives_.find(key(static_cast<uint32_t>(status.MPI_SOURCE), number_in(status.MPI_TAG)));
    if (expected != receives_.end() && !expected->second->withdrawn) {
      expected->second->wrong_size = true;
      withdraw(*expected->second);
    }
    MPI_Request request = MPI_REQUEST_NULL;
    if (mpi().Imrecv(scratch_.data(), static_cast<int>(scratch_.size()), MPI_BYTE, &message, &request) ==
        MPI_SUCCESS) {
      requests_.add(request, [](const MPI_Status&) {});
    }
  }
  return true;
}

void MpiBulk::abandon_overdue(TimePoint now) {
  std::vector<std::pair<Key, std::shared_ptr<Receive>>> overdue;
  for (const auto& [id, receive] : receives_) {
    if (!receive->withdrawn) continue;
    if (receive->give_up == TimePoint::max()) receive->give_up = now + kCancelPatience;
    if (now >= receive->give_up) overdue.emplace_back(id, receive);
  }
  for (const auto& [id, receive] : overdue) abandon(id, *receive);
}

void MpiBulk::abandon(Key id, Receive& receive) {
  const auto done = std::exchange(receive.done, nullptr);
  receives_.erase(id);
  done(Error{EBUSY, "a cancelled transfer cannot be stopped: its memory must not be used again"});
}

void MpiBulk::cancel_all() {
  for (const auto& [id, receive] : receives_) withdraw(*receive);
}

void MpiBulk::abandon_all() {
  for (const auto& [id, receive] : std::exchange(receives_, {})) abandon(id, *receive);
  for (const auto& [id, send] : std::exchange(sends_, {})) {
    if (const auto done = std::exchange(send->done, nullptr))
      done(Error{ECANCELED, "the transport was stopped"});
  }
}

}  // namespace clairfs

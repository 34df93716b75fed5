// The protocol of a meeting (meeting.h): lines of text over TCP.
//
//   host: clairfs-job 1 NONCE             greets each client
//   node: join RANK NODES NONCE PROOF     the proof shows that it knows the secret
//   host: joined PROOF                    so does the host; or: refused WHY, and the connection ends
//   host: missing NUMBER RANK RANK...     every second, until all have come; names the first nodes
//   host: formed                          all are there; from now on they exchange
//   node: put KEY VALUE ... barrier       each node, once a round
//   host: put KEY VALUE ... barrier       to all, once all have said theirs
//   node: bye                             MPI is initialised here
//   host: failed WHY                      at any time: nothing will come of it
//
// The secret keeps out processes that can connect, not those that can change packets under way: MPI's own
// connections, which follow, are neither authenticated nor encrypted.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cache/base/types.h"

namespace clairfs {

inline constexpr std::string_view kMeetingGreeting = "clairfs-job 1 ";
/// Bytes: of a stranger's line (a join has 200), and of a line of a node that has joined (a put has 1,100).
inline constexpr size_t kLongestHello = 512;
inline constexpr size_t kLongestLine = 4096;

/// The random words of both sides, so that no proof can be used again.
struct MeetingNonces {
  std::string host;
  std::string node;
};
std::string node_proof(std::string_view secret, const MeetingNonces& nonces, const JobPlace& place);
std::string host_proof(std::string_view secret, const MeetingNonces& nonces, const JobPlace& place);

/// The line that says which nodes are missing, and what it means to people: "node 2 of 3 has not come to
/// node0:5200". The text is empty where the line is no such line, or says that none is missing.
std::string missing_line(const std::vector<NodeId>& missing);
std::string missing_text(std::string_view line, uint32_t nodes, const std::string& where);

/// The words of a line.
std::vector<std::string_view> words_of(std::string_view line);

}  // namespace clairfs

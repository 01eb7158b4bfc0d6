#include "channel.hpp"

#include <muster/launch/error.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <sys/socket.h>
#include <unistd.h>

#include "sys.hpp"

namespace muster::process {

namespace {

constexpr std::size_t inline_bytes = 32 * 1024;

/// What precedes each body on the wire.
struct Header {
  Kind kind;
  bool in_file; // the body is in the memory file that comes along
};

Blob spill(std::string_view body) {
  Blob blob = Blob::create("muster-message");
  Writer writer(blob);
  writer.write(body.data(), body.size());
  writer.finish();
  return blob;
}

std::string unspill(int fd) {
  const Blob blob = Blob::adopt(fd);
  std::string body(blob.size_bytes(), '\0');
  const ssize_t size = ::pread(fd, body.data(), body.size(), 0);
  body.resize(static_cast<std::size_t>(std::max<ssize_t>(size, trailer_bytes)) - trailer_bytes);
  return body;
}

/// Sends header and body, and `file` along with them unless it is -1. Async-signal-safe.
Sent transmit(int socket, Header header, std::string_view body, int file, bool wait) noexcept {
  iovec parts[2] = {{&header, sizeof header}, {const_cast<char*>(body.data()), body.size()}};
  msghdr head{};
  head.msg_iov = parts;
  head.msg_iovlen = 2;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (file >= 0) {
    head.msg_control = control;
    head.msg_controllen = sizeof control;
    cmsghdr* rights = CMSG_FIRSTHDR(&head);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &file, sizeof file);
  }
  while (::sendmsg(socket, &head, MSG_NOSIGNAL | (wait ? 0 : MSG_DONTWAIT)) < 0) {
    if (errno == EINTR)
      continue;
    return errno == EAGAIN || errno == ENOBUFS ? Sent::later : Sent::closed;
  }
  return Sent::yes;
}

/// The first descriptor in a message's ancillary data, or -1.
int attached_fd(msghdr& head) {
  for (cmsghdr* c = CMSG_FIRSTHDR(&head); c != nullptr; c = CMSG_NXTHDR(&head, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
      continue;
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(c), sizeof fd);
    return fd;
  }
  return -1;
}

} // namespace

Channel Channel::create() {
  int ends[2];
  sys::checked("socketpair",
               [&] { return ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends); });
  return {Fd(ends[0]), Fd(ends[1])};
}

Sent send_message(int socket, Kind kind, std::string_view body, bool wait) {
  if (body.size() <= inline_bytes)
    return transmit(socket, {kind, false}, body, -1, wait);
  const Blob file = spill(body);
  return transmit(socket, {kind, true}, {}, file.fd(), wait);
}

Sent send_file(int socket, Kind kind, int file, bool wait) noexcept {
  return transmit(socket, {kind, true}, {}, file, wait);
}

std::optional<Message> receive_message(int socket, bool wait, bool& closed) {
  closed = false;
  thread_local std::string buffer(inline_bytes + sizeof(Header), '\0');
  iovec part{buffer.data(), buffer.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr head{};
  head.msg_iov = &part;
  head.msg_iovlen = 1;
  head.msg_control = control;
  head.msg_controllen = sizeof control;
  ssize_t size = -1;
  do
    size = ::recvmsg(socket, &head, MSG_CMSG_CLOEXEC | (wait ? 0 : MSG_DONTWAIT));
  while (size < 0 && errno == EINTR);
  if (size < static_cast<ssize_t>(sizeof(Header))) {
    closed = size >= 0 || errno != EAGAIN;
    return std::nullopt;
  }
  Header header{};
  std::memcpy(&header, buffer.data(), sizeof header);
  const int fd = attached_fd(head);
  if (header.in_file && fd >= 0)
    return Message{header.kind, unspill(fd)};
  return Message{header.kind,
                 buffer.substr(sizeof header, static_cast<std::size_t>(size) - sizeof header)};
}

} // namespace muster::process

#include "reserved_port.hpp"

#include <muster/launch/error.hpp>

#include <cerrno>
#include <cstdint>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <fmt/format.h>

#include "launch/hint.hpp"
#include "sys.hpp"

namespace muster::process {

namespace {

[[noreturn]] void refuse(int port) {
  const std::string holder = holder_of_port(port);
  throw UsageError(
      fmt::format("port {} is taken{}{}: choose another, or none, so that a free one is "
                  "found",
                  port,
                  holder.empty() ? "" : " by ",
                  holder));
}

} // namespace

ReservedPort::ReservedPort(int port)
    : socket_(
          sys::checked("socket", [] { return ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); })) {
  const int on = 1;
  ::setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = ::htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (sys::call([&] { return ::bind(socket_.get(), generic, size); }) != 0) {
    if (errno == EADDRINUSE && port != 0)
      refuse(port);
    throw SystemError("reserving a port", errno);
  }
  ::getsockname(socket_.get(), generic, &size);
  port_ = ::ntohs(address.sin_port);
}

} // namespace muster::process

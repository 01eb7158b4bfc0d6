#pragma once

#include <muster/launch/codec.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "fd.hpp"
#include "protocol.hpp"

// The control channel between the launcher and a rank: a SOCK_SEQPACKET pair. Its end is the
// lifeline: a rank that reads end-of-file has lost its launcher.
namespace muster::process {

struct Channel {
  Fd launcher;
  Fd rank;

  /// Throws SystemError.
  static Channel create();
};

/// One message: its kind and its packed body.
struct Message {
  Kind kind{};
  std::string body;
};

enum class Sent { yes, later, closed };

/// Sends one message; bodies over 32 KiB travel in a memory file. With `wait` false returns
/// Sent::later where it would block. Any thread may send at any time.
Sent send_message(int socket, Kind kind, std::string_view body, bool wait);

/// What follows the bytes of a memory file that a Writer finished.
inline constexpr std::size_t trailer_bytes = 24;

/// The same for a body that is in a memory file already, with room for a trailer after it.
/// Async-signal-safe.
Sent send_file(int socket, Kind kind, int file, bool wait) noexcept;

/// Receives one message. nullopt: the other end is closed, or with `wait` false nothing is there
/// (then `closed` is false).
std::optional<Message> receive_message(int socket, bool wait, bool& closed);

} // namespace muster::process

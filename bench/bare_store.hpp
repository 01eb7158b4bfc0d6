#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <torch/csrc/distributed/c10d/Store.hpp>

// The least that a Gloo group needs to meet: keys and values, served by the parent over a socket
// pair for each rank. One request at a time, no time limits, no large values.
namespace bench {

enum class Op : char { set, get, add, check };

/// An operation and its texts, in one message.
inline std::string to_message(Op op, const std::vector<std::string>& texts) {
  std::string message(1, static_cast<char>(op));
  for (const std::string& text : texts) {
    const auto size = static_cast<std::uint32_t>(text.size());
    message.append(reinterpret_cast<const char*>(&size), sizeof size);
    message += text;
  }
  return message;
}

inline std::vector<std::string> texts_of(const std::string& message) {
  std::vector<std::string> texts;
  for (std::size_t at = 1; at < message.size();) {
    std::uint32_t size = 0;
    std::memcpy(&size, message.data() + at, sizeof size);
    texts.push_back(message.substr(at + sizeof size, size));
    at += sizeof size + size;
  }
  return texts;
}

/// Empty at the end.
inline std::string receive(int socket) {
  char buffer[16384];
  const ssize_t size = ::recv(socket, buffer, sizeof buffer, 0);
  return {buffer, size > 0 ? static_cast<std::size_t>(size) : 0};
}

inline void send(int socket, const std::string& text) {
  [[maybe_unused]] const ssize_t done = ::send(socket, text.data(), text.size(), MSG_NOSIGNAL);
}

/// In a rank.
class BareStore : public c10d::Store {
public:
  explicit BareStore(int socket) : socket_(socket) {}
  c10::intrusive_ptr<c10d::Store> clone() override {
    return c10::make_intrusive<BareStore>(socket_);
  }
  void set(const std::string& key, const std::vector<std::uint8_t>& value) override {
    call(Op::set, {key, std::string(value.begin(), value.end())});
  }
  std::vector<std::uint8_t> get(const std::string& key) override {
    const std::string value = call(Op::get, {key});
    return {value.begin() + 1, value.end()};
  }
  std::int64_t add(const std::string& key, std::int64_t amount) override {
    return std::stoll(call(Op::add, {key, std::to_string(amount)}).substr(1));
  }
  bool check(const std::vector<std::string>& keys) override {
    return call(Op::check, keys) == "=1";
  }
  void wait(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys)
      call(Op::get, {key});
  }
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& /*limit*/) override {
    wait(keys);
  }
  std::vector<std::uint8_t> compareSet(const std::string& /*key*/,
                                       const std::vector<std::uint8_t>& /*expected*/,
                                       const std::vector<std::uint8_t>& /*desired*/) override {
    throw std::logic_error("BareStore::compareSet");
  }
  bool deleteKey(const std::string& /*key*/) override {
    throw std::logic_error("BareStore::deleteKey");
  }
  std::int64_t getNumKeys() override { throw std::logic_error("BareStore::getNumKeys"); }

private:
  std::string call(Op op, const std::vector<std::string>& texts) {
    bench::send(socket_, to_message(op, texts));
    const std::string answer = bench::receive(socket_);
    if (answer.empty())
      throw std::runtime_error("the parent is gone");
    return answer;
  }

  int socket_;
};

/// In the parent: answers until every rank has closed its end.
class BareServer {
public:
  explicit BareServer(const std::vector<int>& sockets) {
    for (const int socket : sockets)
      sockets_.push_back({socket, POLLIN, 0});
  }

  void run() {
    for (std::size_t open = sockets_.size(); open > 0;) {
      ::poll(sockets_.data(), sockets_.size(), -1);
      for (pollfd& each : sockets_) {
        if (each.revents == 0)
          continue;
        const std::string message = receive(each.fd);
        if (!message.empty()) {
          handle(each.fd, static_cast<Op>(message[0]), texts_of(message));
          continue;
        }
        ::close(each.fd);
        each.fd = -1;
        --open;
      }
    }
  }

private:
  void handle(int socket, Op op, const std::vector<std::string>& texts) {
    const std::string& key = texts[0];
    const auto found = values_.find(key);
    if (op == Op::get) {
      if (found == values_.end())
        waiting_.emplace(key, socket);
      else
        send(socket, "=" + found->second);
      return;
    }
    if (op == Op::check) {
      bool all = true;
      for (const std::string& each : texts)
        all = all && values_.count(each) > 0;
      return send(socket, all ? "=1" : "=0");
    }
    if (op == Op::set)
      values_[key] = texts[1];
    else
      values_[key] = std::to_string((found == values_.end() ? 0 : std::stoll(found->second)) +
                                    std::stoll(texts[1]));
    send(socket, "=" + (op == Op::add ? values_[key] : std::string()));
    const auto [first, last] = waiting_.equal_range(key);
    for (auto each = first; each != last; ++each)
      send(each->second, "=" + values_[key]);
    waiting_.erase(first, last);
  }

  std::vector<pollfd> sockets_;
  std::map<std::string, std::string> values_;
  std::multimap<std::string, int> waiting_;
};

} // namespace bench

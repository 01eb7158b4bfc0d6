#include "catch.hpp"
#include "process/store_server.hpp"

using namespace muster::process;
using std::chrono::milliseconds;

namespace {

struct Fixture {
  std::vector<std::pair<std::size_t, StoreReply>> replies;
  StoreServer server{
      [this](std::size_t rank, StoreReply reply) { replies.emplace_back(rank, std::move(reply)); }};
  StoreServer::Clock::time_point now = {};
  std::uint64_t id = 0;

  /// Sends a request; the reply to it if it came at once.
  std::optional<StoreReply> ask(std::size_t rank, StoreRequest request) {
    request.id = ++id;
    const std::size_t before = replies.size();
    server.handle(rank, std::move(request), now);
    for (std::size_t i = before; i < replies.size(); ++i)
      if (replies[i].first == rank && replies[i].second.id == id)
        return replies[i].second;
    return std::nullopt;
  }
};

} // namespace

TEST_CASE_METHOD(Fixture, "set, get, add, append and erase do what they say", "[store]") {
  ask(0, {.op = StoreOp::set, .keys = {"a"}, .values = {std::string("\0x", 2)}});
  CHECK(ask(1, {.op = StoreOp::get, .keys = {"a"}})->values[0] == std::string("\0x", 2));
  CHECK(ask(0, {.op = StoreOp::add, .keys = {"n"}, .number = 5})->number == 5);
  CHECK(ask(1, {.op = StoreOp::add, .keys = {"n"}, .number = -7})->number == -2);
  CHECK(ask(0, {.op = StoreOp::get, .keys = {"n"}})->values[0] == "-2");
  ask(0, {.op = StoreOp::append, .keys = {"a"}, .values = {"y"}});
  CHECK(ask(1, {.op = StoreOp::get, .keys = {"a"}})->values[0] == std::string("\0xy", 3));
  CHECK(ask(0, {.op = StoreOp::size})->number == 2);
  CHECK(ask(0, {.op = StoreOp::erase, .keys = {"a"}})->number == 1);
  CHECK(ask(0, {.op = StoreOp::erase, .keys = {"a"}})->number == 0);
  CHECK(ask(0, {.op = StoreOp::check, .keys = {"n", "a"}})->number == 0);
  CHECK(ask(0, {.op = StoreOp::keys})->values == std::vector<std::string>{"n"});
}

TEST_CASE_METHOD(Fixture, "compare_set sets only what it expects", "[store]") {
  const auto swap = [&](const char* expected, const char* desired) {
    return ask(0, {.op = StoreOp::compare_set, .keys = {"k"}, .values = {expected, desired}})
        ->values[0];
  };
  CHECK(swap("old", "new") == "old"); // not there, and it must be
  CHECK(ask(0, {.op = StoreOp::check, .keys = {"k"}})->number == 0);
  CHECK(swap("", "first") == "first");
  CHECK(swap("other", "new") == "first");
  CHECK(swap("first", "second") == "second");
}

TEST_CASE_METHOD(Fixture, "a wait for several keys ends when the last of them comes", "[store]") {
  CHECK_FALSE(ask(0, {.op = StoreOp::wait, .keys = {"a", "b", "c"}, .number = 1000}));
  for (const char* key : {"c", "a"})
    ask(1, {.op = StoreOp::set, .keys = {key}, .values = {""}});
  CHECK(replies.size() == 2);
  ask(1, {.op = StoreOp::set, .keys = {"b"}, .values = {""}});
  REQUIRE(replies.size() == 4);
  CHECK(replies.back().first == 0);
  CHECK(replies.back().second.id == 1);
  CHECK(replies.back().second.status == StoreStatus::ok);
  CHECK_FALSE(server.deadline());
}

TEST_CASE_METHOD(Fixture, "a wait ends at its time limit and names the missing key", "[store]") {
  ask(1, {.op = StoreOp::set, .keys = {"a"}, .values = {""}});
  CHECK_FALSE(ask(0, {.op = StoreOp::get, .keys = {"a", "b"}, .number = 100}));
  REQUIRE(server.deadline() == now + milliseconds(100));
  server.expire(now + milliseconds(99));
  CHECK(replies.size() == 1);
  server.expire(now + milliseconds(100));
  REQUIRE(replies.size() == 2);
  CHECK(replies.back().second.status == StoreStatus::timeout);
  CHECK(replies.back().second.values == std::vector<std::string>{"b"});
  CHECK(ask(0, {.op = StoreOp::get, .keys = {"b"}, .number = 0})->status == StoreStatus::timeout);
}

TEST_CASE_METHOD(Fixture, "a queue gives each value to one taker", "[store]") {
  CHECK_FALSE(ask(0, {.op = StoreOp::pop, .keys = {"q"}, .number = 1000}));
  CHECK_FALSE(ask(1, {.op = StoreOp::pop, .keys = {"q"}, .number = 1000}));
  ask(2, {.op = StoreOp::push, .keys = {"q"}, .values = {"x"}});
  ask(2, {.op = StoreOp::push, .keys = {"q"}, .values = {"y"}});
  std::vector<std::string> taken;
  for (const auto& [rank, reply] : replies)
    if (rank < 2)
      taken.push_back(reply.values.at(0));
  std::sort(taken.begin(), taken.end());
  CHECK(taken == std::vector<std::string>{"x", "y"});
  ask(2, {.op = StoreOp::push, .keys = {"q"}, .values = {"z"}});
  CHECK(ask(2, {.op = StoreOp::queue_size, .keys = {"q"}})->number == 1);
  CHECK(ask(2, {.op = StoreOp::check, .keys = {"q"}})->number == 0); // a queue is no key
}

TEST_CASE_METHOD(Fixture,
                 "a rank that has gone waits no more and a closed store answers all",
                 "[store]") {
  ask(0, {.op = StoreOp::get, .keys = {"k"}, .number = 1000});
  ask(1, {.op = StoreOp::get, .keys = {"k"}, .number = 1000});
  server.forget(0);
  server.close();
  REQUIRE(replies.size() == 1);
  CHECK(replies[0].first == 1);
  CHECK(replies[0].second.status == StoreStatus::closed);
  CHECK(ask(1, {.op = StoreOp::size})->status == StoreStatus::closed);
  CHECK_FALSE(server.deadline());
}

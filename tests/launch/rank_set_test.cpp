#include <muster/launch/error.hpp>
#include <muster/launch/logs.hpp>
#include <muster/launch/rank_set.hpp>

#include <string>
#include <vector>

#include "catch.hpp"

using muster::RankSet;
using muster::StreamMap;
using muster::Streams;

namespace {

/// The ranks below 20 that are in the set.
std::vector<int> members(const RankSet& set) {
  std::vector<int> found;
  for (int rank = 0; rank < 20; ++rank)
    if (set.contains(rank))
      found.push_back(rank);
  return found;
}

RankSet ranks(const std::string& text) { return RankSet::parse(text, "--console"); }
StreamMap streams(const std::string& text) { return StreamMap::parse(text, "--tee"); }

} // namespace

TEST_CASE("ranks and ranges are parsed, with two digits too", "[rank_set]") {
  CHECK(members(ranks("3")) == std::vector<int>{3});
  CHECK(members(ranks("0-2,12,17-18")) == std::vector<int>{0, 1, 2, 12, 17, 18});
  CHECK(members(ranks("5,1,1-2")) == std::vector<int>{1, 2, 5});
  CHECK(ranks("0-2,12").highest() == 12);
}

TEST_CASE("all, none and nothing are sets of ranks", "[rank_set]") {
  CHECK(members(ranks("all")).size() == 20);
  CHECK(ranks("all").contains(1'000'000));
  CHECK(ranks("all").highest() == -1);
  CHECK(ranks("none").empty());
  CHECK(ranks("").empty());
  CHECK(RankSet().highest() == -1);
  CHECK(members(RankSet::only(7)) == std::vector<int>{7});
}

TEST_CASE("what is no set of ranks is refused by name", "[rank_set]") {
  const std::string text = GENERATE("x",
                                    "-1",
                                    "1-",
                                    "-",
                                    ",",
                                    "1,",
                                    ",1",
                                    "1,,2",
                                    "3-1",
                                    "1 2",
                                    "1x",
                                    "1-2-3",
                                    "0x1",
                                    "99999999999");
  CHECK_THROWS_WITH(ranks(text), Catch::Contains("--console '" + text + "'"));
  CHECK_THROWS_AS(ranks(text), muster::UsageError);
}

TEST_CASE("one digit means every rank", "[stream_map]") {
  CHECK(streams("0").empty());
  CHECK(streams("1").of(0) == Streams::out);
  CHECK(streams("2").of(99) == Streams::err);
  CHECK(streams("3").of(5) == Streams::both);
  CHECK(streams("3").highest() == -1);
}

TEST_CASE("streams are chosen by local rank, and ranks that are not named have none",
          "[stream_map]") {
  const StreamMap map = streams("0:3,4-7:1,12:2");
  CHECK(map.of(0) == Streams::both);
  CHECK(map.of(1) == Streams::none);
  CHECK(map.of(4) == Streams::out);
  CHECK(map.of(7) == Streams::out);
  CHECK(map.of(12) == Streams::err);
  CHECK(map.highest() == 12);
  CHECK_FALSE(map.empty());
}

TEST_CASE("ranks before one colon share their streams", "[stream_map]") {
  const StreamMap map = streams("0,2-3:1,5:2");
  CHECK(map.of(0) == Streams::out);
  CHECK(map.of(1) == Streams::none);
  CHECK(map.of(3) == Streams::out);
  CHECK(map.of(5) == Streams::err);
}

TEST_CASE("a map of no streams is empty", "[stream_map]") {
  CHECK(StreamMap().empty());
  CHECK(streams("0:0,1:0").empty());
}

TEST_CASE("what is no map of streams is refused by name", "[stream_map]") {
  const std::string text = GENERATE("",
                                    "4",
                                    "x",
                                    "0:",
                                    "0:4",
                                    ":1",
                                    "0:1,",
                                    "0:1,2",
                                    "0:1,,2:1",
                                    "0:1;1:2",
                                    "a:1",
                                    "3-1:2",
                                    "0:11");
  CHECK_THROWS_WITH(streams(text), Catch::Contains("--tee '" + text + "'"));
  CHECK_THROWS_AS(streams(text), muster::UsageError);
}

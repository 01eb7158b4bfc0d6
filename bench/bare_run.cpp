// The bound of `muster run`: posix_spawn in a row, and waiting. `bare_run RANKS PROGRAM
// [ARGUMENT...]`. `bare_run lines COUNT` is a program for ranks: it writes COUNT lines of 100
// bytes.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

int write_lines(int count) {
  const char* rank = std::getenv("RANK");
  if (!rank)
    rank = std::getenv("OMPI_COMM_WORLD_RANK");
  for (int i = 0; i < count; ++i) {
    char line[101];
    const int size = std::snprintf(line, sizeof line, "line %d of rank %s ", i, rank ? rank : "?");
    std::memset(line + size, 'x', static_cast<std::size_t>(99 - size));
    line[99] = '\n';
    std::fwrite(line, 1, 100, stdout);
  }
  return std::fflush(stdout);
}

} // namespace

int main(int argc, char** argv) {
  if (argc < 3)
    return 2;
  if (std::strcmp(argv[1], "lines") == 0)
    return write_lines(std::atoi(argv[2]));
  std::vector<pid_t> ranks(static_cast<std::size_t>(std::atoi(argv[1])));
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    ::setenv("RANK", std::to_string(i).c_str(), 1);
    if (::posix_spawnp(&ranks[i], argv[2], nullptr, nullptr, argv + 2, environ) != 0)
      return 1;
  }
  int worst = 0;
  for (const pid_t rank : ranks) {
    int status = 0;
    ::waitpid(rank, &status, 0);
    worst |= status;
  }
  return worst == 0 ? 0 : 1;
}

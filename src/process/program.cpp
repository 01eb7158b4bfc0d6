#include "program.hpp"

#include <muster/cluster/environment.hpp>
#include <muster/launch/error.hpp>
#include <muster/launch/init.hpp>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include <dirent.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "../launch/modules.hpp"
#include "sys.hpp"

namespace muster::process {

namespace {

std::unique_ptr<Program> program;

bool server_wanted() {
  const char* wish = std::getenv("MUSTER_FORKSERVER");
  return wish == nullptr || std::string(wish) != "0";
}

/// Where others created the ranks this process launches nothing, and needs no server.
bool created_by_others() {
  try {
    return is_rank() || detect_world(EnvSnapshot::current()).has_value();
  } catch (const UsageError&) {
    return true; // launch() will say what is wrong
  }
}

/// A program started without its standard descriptors would hand out their numbers for pipes.
void open_standard_descriptors() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(fd, F_GETFD) < 0)
      ::open("/dev/null", O_RDWR); // takes the lowest free number: this one
}

} // namespace

std::vector<std::string> thread_names() {
  std::vector<std::string> names;
  DIR* list = ::opendir("/proc/self/task");
  if (list == nullptr)
    return names;
  while (const dirent* entry = ::readdir(list)) {
    if (entry->d_name[0] == '.')
      continue;
    std::string name;
    std::getline(std::ifstream(std::string("/proc/self/task/") + entry->d_name + "/comm"), name);
    names.push_back(name);
  }
  ::closedir(list);
  return names;
}

Program* Program::get() noexcept { return program.get(); }

void Program::start(int argc, char** argv) {
  if (program)
    return;
  open_standard_descriptors();
  auto started = std::make_unique<Program>();
  started->arguments_.assign(argv, argv + argc);
  started->executable_ = Fd(sys::checked(
      "opening /proc/self/exe", [] { return ::open("/proc/self/exe", O_PATH | O_CLOEXEC); }));
  started->modules_ = loaded_build_ids();
  program = std::move(started);
  prepare_for_ranks();
  if (server_wanted() && !created_by_others() && thread_names().size() == 1)
    program->guardian_ = std::make_shared<Guardian>(true);
}

void Program::abandon() noexcept {
  if (guardian_)
    guardian_->abandon();
  guardian_.reset();
}

bool Program::had_module(const std::string& build_id) const {
  return std::find(modules_.begin(), modules_.end(), build_id) != modules_.end();
}

std::shared_ptr<Guardian> Program::guardian() {
  const std::lock_guard lock(mutex_);
  if (!guardian_ || !guardian_->alive())
    guardian_ = std::make_shared<Guardian>(server_wanted() && thread_names().size() == 1);
  return guardian_;
}

std::shared_ptr<Guardian> Program::fork_server() {
  if (!server_wanted())
    throw UsageError("start method forkserver: MUSTER_FORKSERVER=0 forbids the fork server; use "
                     "StartMethod::spawn");
  auto found = guardian();
  if (!found->can_fork())
    throw UsageError(
        fmt::format("start method forkserver: there is no fork server, and none can be made now "
                    "since this process has {} threads ({}); call muster::init first in main, or "
                    "use StartMethod::spawn",
                    thread_names().size(),
                    fmt::join(thread_names(), ", ")));
  return found;
}

} // namespace muster::process

namespace muster {

void init(int argc, char** argv) {
  using namespace process;
  if (in_rank())
    return;
  if (const char* channel = std::getenv(channel_variable)) {
    try {
      const RankFds fds = fds_from_variable(channel);
      ::unsetenv(channel_variable);
      if (fds.assignment >= 0) {
        join_job(fds);
      } else {
        ::prctl(PR_SET_NAME, ::program_invocation_short_name);
        run_rank(fds, Birth::executed);
      }
    } catch (const std::exception& error) {
      std::_Exit(detail::report_error(error));
    }
  }
  Program::start(argc, argv);
}

} // namespace muster

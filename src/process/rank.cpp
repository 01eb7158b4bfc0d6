#include "rank.hpp"

#include <muster/launch/entry.hpp>
#include <muster/launch/error.hpp>
#include <muster/launch/init.hpp>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <mutex>
#include <typeinfo>

#include <cxxabi.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "call_without_unwinding.hpp"
#include "channel.hpp"
#include "control_store.hpp"
#include "crash.hpp"
#include "exec.hpp"
#include "fault.hpp"
#include "memory_policy.hpp"
#include "status_page.hpp"

namespace muster::process {

namespace {

constexpr int exception_code = 1;

/// The one rank that this process is. Lives until _exit.
struct Rank {
  RankFds fds;
  Assignment assignment;
  StatusPage page;
  World world;
  detail::Call* call = nullptr;
  bool inside_launch = false; // of a rank whose main goes on
  std::terminate_handler terminate_before = nullptr;
  std::mutex mutex; // guards callbacks
  std::vector<std::function<void()>> callbacks;
};

Rank* this_rank = nullptr;

Rank& the_rank() {
  static Rank rank;
  return rank;
}

/// True while main, and not a launched function, is what may go wrong.
bool is_in_main(const Rank& rank) {
  return rank.assignment.job.part == Part::program && !rank.inside_launch;
}

void enter_phase(Phase phase) noexcept {
  RankSlot* slot = own_slot();
  slot->phase = phase;
  slot->last_progress = monotonic_ns();
}

void run_callbacks() {
  std::vector<std::function<void()>> callbacks;
  {
    const std::lock_guard lock(this_rank->mutex);
    callbacks.swap(this_rank->callbacks);
  }
  for (auto callback = callbacks.rbegin(); callback != callbacks.rend(); ++callback)
    (*callback)();
}

[[noreturn]] void leave(int code) {
  run_callbacks();
  std::cout.flush();
  std::clog.flush();
  std::fflush(nullptr);
  ::_exit(code);
}

std::string demangled(const std::type_info* type) {
  if (type == nullptr)
    return "unknown";
  int status = 0;
  char* name = abi::__cxa_demangle(type->name(), nullptr, nullptr, &status);
  const std::string text = name ? name : type->name();
  std::free(name);
  return text;
}

/// True for what a rank sees when another one went away: an echo, never the cause.
bool says_peer_lost(const std::string& type, const std::string& message) {
  static constexpr const char* types[] = {
      "gloo::IoException", "c10::DistNetworkError", "muster::RendezvousError"};
  static constexpr const char* texts[] = {"onnection closed by peer",
                                          "onnection reset by peer",
                                          "roken pipe",
                                          "pair closure",
                                          "the job's store is closed"};
  const auto in_message = [&](const char* text) { return message.find(text) != std::string::npos; };
  return std::any_of(std::begin(texts), std::end(texts), in_message) &&
         (std::count(std::begin(types), std::end(types), type) > 0 || type.starts_with("c10::") ||
          type == "std::runtime_error");
}

/// What the launched function's owner has to say about its exception, on a line of its own.
std::string explanation_of(const std::exception& error) {
  const detail::Call* call = this_rank->call;
  const std::string text = call && call->explain ? call->explain(error) : std::string();
  return text.empty() ? text : "\n" + text;
}

Failure current_failure() {
  Failure failure;
  failure.type = demangled(abi::__cxa_current_exception_type());
  try {
    throw;
  } catch (const std::exception& error) {
    failure.message = error.what() + explanation_of(error);
  } catch (const std::string& text) {
    failure.message = text;
  } catch (const char* text) {
    failure.message = text;
  } catch (int number) {
    failure.message = std::to_string(number);
  } catch (...) {
    failure.message = "(not a std::exception)";
  }
  failure.peer_lost = says_peer_lost(failure.type, failure.message);
  return failure;
}

/// An exception that nobody caught, in any thread: tell the launcher, then leave.
[[noreturn]] void on_terminate() {
  static std::atomic_flag entered;
  if (entered.test_and_set())
    ::_exit(exception_code); // a callback threw, or a second thread: the first report stands
  const bool thrown = std::current_exception() != nullptr;
  const Failure failure =
      thrown ? current_failure() : Failure{.type = "", .message = "std::terminate was called"};
  send_message(this_rank->fds.control, Kind::failure, pack(failure), true);
  if (thrown && !is_in_main(*this_rank))
    leave(exception_code);
  std::fflush(nullptr);
  if (this_rank->terminate_before)
    this_rank->terminate_before();
  std::abort();
}

/// A rank is one process: of several that got its descriptors only one may be it.
void claim_slot(const Rank& rank) {
  RankSlot* slot = own_slot();
  std::int32_t owner = 0;
  while (!slot->owner.compare_exchange_strong(owner, ::getpid()))
    if (::kill(owner, 0) == 0 || errno == EPERM) {
      this_rank = nullptr;
      throw UsageError(fmt::format("rank {} is already process {}: a rank's program may start one "
                                   "muster program at a time; unset {} for the others",
                                   rank.assignment.spec.rank,
                                   owner,
                                   channel_variable));
    }
}

/// Gloo writes to dead peers without MSG_NOSIGNAL; exec gives the default back to other programs.
void on_sigpipe(int) {}

Assignment receive_assignment(int control) {
  bool closed = false;
  const auto message = receive_message(control, true, closed);
  if (!message || message->kind != Kind::assignment)
    ::_exit(exception_code); // the launcher is gone
  return unpack<Assignment>(message->body);
}

void set_variables(const std::vector<std::string>& variables) {
  for (const std::string& variable : variables) {
    const auto equals = variable.find('=', 1);
    if (equals != std::string::npos)
      ::setenv(variable.substr(0, equals).c_str(), variable.substr(equals + 1).c_str(), 1);
  }
}

void set_cpus(const std::vector<int>& cpus) {
  const auto mask = bit_mask(cpus);
  const auto* set = reinterpret_cast<const cpu_set_t*>(mask.data());
  if (!mask.empty() && ::sched_setaffinity(0, mask.size() * sizeof mask[0], set) != 0)
    throw SystemError("binding the rank to its CPUs", errno);
}

void set_memory_nodes(const std::vector<int>& nodes) {
  const auto mask = bit_mask(nodes);
  apply_memory_policy(mask.data(), mask.size() * 64);
}

/// The launcher's state at the launch, in a rank whose fork server was made earlier.
void take_over(const ProcessState& state) {
  ::clearenv();
  set_variables(state.environment);
  ::umask(static_cast<mode_t>(state.umask));
  ::setpriority(PRIO_PROCESS, 0, state.niceness);
  for (std::size_t i = 0; i < state.limits.size(); ++i) {
    const rlimit limit{state.limits[i][0], state.limits[i][1]};
    ::setrlimit(static_cast<__rlimit_resource>(i), &limit);
  }
  set_cpus(state.cpus);
}

using SetThreads = void (*)(int);

/// OpenMP's way to choose the number of threads, if this process has OpenMP.
SetThreads omp_set_threads() noexcept {
  static const auto found =
      reinterpret_cast<SetThreads>(::dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  return found;
}

void set_threads(int threads) {
  if (const SetThreads set = omp_set_threads(); set && threads > 0)
    set(threads);
}

World world_of(const Assignment& assignment, int control) {
  const JobPart& job = assignment.job;
  World world;
  world.rank = assignment.spec.rank;
  world.size = job.size;
  world.local_rank = assignment.spec.local_rank;
  world.local_size = job.local_size;
  world.node_rank = job.node_rank;
  world.node_count = job.node_count;
  world.master_addr = job.master_address;
  world.master_port = job.master_port;
  world.attempt = job.attempt;
  world.threads = job.threads;
  world.source = "muster";
  world.timeout = std::chrono::milliseconds(job.group_timeout_ms);
  world.extra = assignment.spec.extra;
  if (job.node_count == 1)
    world.store = std::make_shared<ControlStore>(control);
  return world;
}

/// Maps the status page and makes the world.
void take_place(Rank& rank) {
  rank.page = StatusPage::map(Blob::adopt(rank.fds.page));
  rank.world = world_of(rank.assignment, rank.fds.control);
  own_slot()->linked = true;
}

void settle_in(Rank& rank, Birth birth) {
  if (birth == Birth::from_server)
    take_over(rank.assignment.job.state);
  if (birth != Birth::executed) {
    set_variables(rank.assignment.environment);
    set_cpus(rank.assignment.spec.cpus);
    set_memory_nodes(rank.assignment.spec.memory_nodes);
    const std::string& cwd = rank.assignment.spec.cwd;
    if (!cwd.empty() && ::chdir(cwd.c_str()) != 0)
      throw SystemError("changing to the rank's directory " + cwd, errno);
    set_threads(rank.assignment.job.threads);
  }
  take_place(rank);
}

/// The launched function, from its arguments to its result.
void work(Rank& rank) {
  const JobPart& job = rank.assignment.job;
  const auto thunk = reinterpret_cast<detail::Thunk>(address_of(job.thunk));
  void* function = address_of(job.function);
  enter_phase(Phase::decoding);
  Reader arguments(Blob::adopt(rank.fds.arguments));
  Writer result(Blob::adopt(rank.fds.result));
  detail::Call call{function, rank.world, arguments, result};
  rank.call = &call;
  fault_point("rank-enter", rank.assignment.spec.rank);
  enter_phase(Phase::running);
  thunk(call);
  fault_point("rank-result", rank.assignment.spec.rank);
  result.finish();
  enter_phase(Phase::returned);
  fault_point("rank-leave", rank.assignment.spec.rank);
}

void prepare_process() {
  struct sigaction action {};
  action.sa_handler = on_sigpipe;
  ::sigaction(SIGPIPE, &action, nullptr);
  std::setvbuf(stdout, nullptr, _IOLBF, 0); // nobody sees where a rank's buffer is cut
  std::set_terminate(on_terminate);
  report_fatal_signals(this_rank->fds.control);
}

/// The number may have been given to something else since.
bool is_channel(int fd) {
  struct stat info {};
  return ::fstat(fd, &info) == 0 && S_ISSOCK(info.st_mode);
}

} // namespace

void run_rank(RankFds fds, Birth birth) noexcept {
  Rank& rank = the_rank();
  rank.fds = fds;
  this_rank = &rank;
  prepare_process();
  // Everything that may throw; what does is reported by on_terminate.
  call_without_unwinding(
      [](void* data) {
        Rank& self = *this_rank;
        self.assignment = receive_assignment(self.fds.control);
        settle_in(self, *static_cast<Birth*>(data));
        fault_point("rank-start", self.assignment.spec.rank);
        work(self);
      },
      &birth);
  leave(0);
}

void join_job(RankFds fds) {
  Rank& rank = the_rank();
  rank.fds = fds;
  rank.assignment = decode<Assignment>(Blob::adopt(fds.assignment));
  this_rank = &rank;
  take_place(rank);
  claim_slot(rank);
  rank.terminate_before = std::get_terminate();
  prepare_process();
  std::atexit([] { run_callbacks(); });
}

const World* joined_world() noexcept {
  return joined_part() == Part::function || this_rank->inside_launch ? nullptr : &this_rank->world;
}

Part joined_part() noexcept { return this_rank ? this_rank->assignment.job.part : Part::function; }

void become_rank(const Work& wanted) {
  const JobPart& job = this_rank->assignment.job;
  for (const auto& [theirs, here] :
       {std::pair(&job.thunk, &wanted.thunk), std::pair(&job.function, &wanted.function)})
    if (theirs->build_id != here->build_id || theirs->offset != here->offset)
      throw UsageError(fmt::format(
          "rank {} of a SubprocessLauncher came to another launch than its launcher's (function at "
          "{:#x} of {}, not {:#x} of {}): the first launch of main must be the same in both; use "
          "SpawnLauncher for more than one",
          this_rank->world.rank,
          here->offset,
          here->module,
          theirs->offset,
          theirs->module));
  this_rank->inside_launch = true;
  call_without_unwinding([](void*) { work(*this_rank); }, nullptr);
  leave(0);
}

void call_inside(void (*thunk)(detail::Call&), detail::Call& call) {
  if (!this_rank)
    return thunk(call);
  this_rank->inside_launch = true;
  this_rank->call = &call;
  enter_phase(Phase::running);
  call_without_unwinding(
      [](void* function) { (*static_cast<decltype(thunk)*>(function))(*this_rank->call); }, &thunk);
  enter_phase(Phase::returned);
  this_rank->call = nullptr;
  this_rank->inside_launch = false;
}

void tell_failure(const std::exception& error) noexcept {
  if (joined_part() == Part::function)
    return;
  Failure failure{demangled(&typeid(error)), error.what()};
  failure.peer_lost = says_peer_lost(failure.type, failure.message);
  send_message(this_rank->fds.control, Kind::failure, pack(failure), false);
}

void prepare_for_ranks() noexcept { omp_set_threads(); }

std::string to_variable(const RankFds& fds) {
  return fmt::format(
      "{},{},{},{},{}", fds.control, fds.page, fds.arguments, fds.result, fds.assignment);
}

RankFds fds_from_variable(const std::string& text) {
  RankFds fds;
  const char* at = text.data();
  const char* end = at + text.size();
  bool good = true;
  for (int* fd : {&fds.control, &fds.page, &fds.arguments, &fds.result, &fds.assignment}) {
    const auto [next, error] = std::from_chars(at, end, *fd);
    good = good && error == std::errc() && (*fd == -1 || ::fcntl(*fd, F_SETFD, FD_CLOEXEC) == 0);
    at = next < end ? next + 1 : end;
  }
  if (!good || !is_channel(fds.control))
    throw UsageError(fmt::format("{}={} names descriptors that this process does not have; it was "
                                 "started by something that inherited a rank's environment",
                                 channel_variable,
                                 text));
  return fds;
}

bool is_rank() noexcept { return this_rank != nullptr; }

RankSlot* own_slot() noexcept {
  return this_rank
             ? this_rank->page.slot(static_cast<std::size_t>(this_rank->assignment.spec.local_rank))
             : nullptr;
}

} // namespace muster::process

namespace muster {

bool in_rank() noexcept { return process::is_rank(); }

void at_rank_exit(std::function<void()> callback) {
  if (!process::is_rank())
    throw UsageError("at_rank_exit outside of a rank: use std::atexit, or a destructor");
  const std::lock_guard lock(process::this_rank->mutex);
  process::this_rank->callbacks.push_back(std::move(callback));
}

void progress(const char* what) noexcept {
  if (process::RankSlot* slot = process::own_slot()) {
    slot->text.set(what);
    slot->last_progress = process::monotonic_ns();
  }
}

} // namespace muster

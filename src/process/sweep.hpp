#pragma once

#include <string>
#include <vector>

#include <sys/types.h>

namespace muster::process {

/// While one of these lives, orphans among this process's descendants become its children, so that
/// daemons of ranks can be found. Counted; the last one puts the flag back.
class Subreaper {
public:
  Subreaper() noexcept;
  Subreaper(const Subreaper&) = delete;
  Subreaper& operator=(const Subreaper&) = delete;
  ~Subreaper();
};

/// Reaps dead children of the main thread that are not among `ranks`: orphans that came to this
/// process. Only for a process that has no other children of its own.
void reap_strangers(const std::vector<pid_t>& ranks);

/// Finds, when a job is over, what its ranks left behind and this process, as the subreaper, got.
class OrphanSweep {
public:
  /// To be made before the first rank: children that are there now are the host program's.
  OrphanSweep();

  /// Kills and reaps orphans that descend from ranks: those with `token` in their environment (they
  /// were executed), with a rank's end of a control channel open (they were only forked; `channels`
  /// are inode numbers), or in a rank's process group (`ranks`). Dead ones that show none of this
  /// are reaped only while this process has one thread: else they may be another thread's children.
  void run(const std::string& token,
           const std::vector<ino_t>& channels,
           const std::vector<pid_t>& ranks) const;

private:
  Subreaper subreaper_;
  std::vector<pid_t> before_;
};

} // namespace muster::process

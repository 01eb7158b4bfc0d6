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

/// Kills and reaps orphans that descend from the ranks of one job: those with `token` in their
/// environment (they were executed), or with a rank's end of a control channel open (they were only
/// forked). Leaves all other children alone. `channels` are inode numbers.
void sweep_orphans(const std::string& token, const std::vector<ino_t>& channels);

} // namespace muster::process

#pragma once

namespace muster::process {

/// A named point where MUSTER_FAULT=stage:action[:rank] makes something go wrong, for tests; in
/// every build, since an optimized build has other races. Actions: `exit N`, `signal N`, `hang`,
/// `sleep MS`. Does nothing unless the variable names this stage (and this rank, if it names one).
void fault_point(const char* stage, int rank) noexcept;

} // namespace muster::process

#!/usr/bin/env bash
# From a bare Debian or Ubuntu to a running demo or a finished test run. See --help.
set -Eeuo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
root=$PWD

# --- what is brought here -------------------------------------------------------------------------

packages=(
  g++ cmake ninja-build pkg-config ccache python3 python3-pip ca-certificates
  libfmt-dev libcli11-dev catch2 libcereal-dev nlohmann-json3-dev libxxhash-dev libhwloc-dev
  libdw-dev zlib1g-dev dataset-fashion-mnist
)
peer_packages=(openmpi-bin slurm-wlm python3-venv)

torch=2.15.0
# The files of a torch version, with their sha256. Of a CUDA build, libtorch_cpu.so itself needs the
# runtime and cupti to be loaded, and nothing else of CUDA.
pins='
2.15.0 48c2d861134c0b5697c7602cb5ffa68f62a2989fdcd1717e593356f67996ca1e torch-2.15.0-cp311-cp311-manylinux_2_28_x86_64.whl
2.15.0 3498247680dfddce31bad102af7e3e26fc795342a3cac64722bb0fa95e7f60f0 nvidia_cuda_runtime-13.2.86-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl
2.15.0 8fa29f15dd8336181f961764d9d95236fc6b931dd0c8fcf8cd70aab0c310b586 nvidia_cuda_cupti-13.2.86-py3-none-manylinux_2_25_x86_64.whl
'
demo=(examples/fashion_mnist --nprocs 2 --epochs 3)

usage() {
  cat <<'END'
usage: ./bootstrap.sh COMMAND [OPTION]... [-- ARGUMENT...]

  demo     trains Fashion-MNIST on two ranks; ARGUMENTs replace its own (--nprocs 2 --epochs 3)
  test     builds and runs the tests; ARGUMENTs go to ctest
  bench    builds and runs the benchmarks; ARGUMENTs choose rows (P1 P3 --runs 11)

  --full             test: then also the sanitizers and the short stress tests. Tests that passed on
                     these very sources before are not run again
  --label L          test: only the tests with this label (pure, process, torch, ...)
  --peers            test, bench: bring what muster is compared with, too: MPI, Slurm and a whole
                     Python torch (several GB)
  --libtorch DIR     use this libtorch: an unpacked zip, or the torch folder of a wheel
  --torch VERSION    take the torch wheel of this version instead of 2.15.0
  --preset P         release (the default), dev, asan or tsan
  --help

Everything that is missing is brought first: system packages by apt (as root or with sudo), libtorch
as the torch wheel. Downloads are kept in ${XDG_CACHE_HOME:-~/.cache}/muster, libtorch in .deps,
builds in build/<preset>. It may be interrupted and run again at any time.
END
}

# --- saying and failing ---------------------------------------------------------------------------

step="reading the command line"
log=""
temporary=()

say() { printf '== %s\n' "$*"; }

begin() {
  step=$1
  say "$step"
}

# Ends the run: what is wrong, then the way out, a line each.
fail() {
  printf '%s\n' "$@" | sed 's/^/bootstrap.sh: /' >&2
  exit 1
}

finish() {
  local status=$?
  trap - EXIT
  rm -rf -- "${temporary[@]}"
  if ((status != 0)); then
    printf 'bootstrap.sh: failed while %s (exit code %d)\n' "$step" "$status" >&2
  fi
  exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

# Runs a command whose output is of interest only if it fails.
quietly() {
  log=$(mktemp)
  temporary+=("$log")
  if ! "$@" >"$log" 2>&1 </dev/null; then
    tail -n 40 "$log" >&2
    return 1
  fi
}

# --- system packages ------------------------------------------------------------------------------

installed() {
  [[ $(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null) == installed ]] && return
  # Tools may come from elsewhere.
  case $1 in
    g++ | cmake | ccache | python3) command -v "$1" >/dev/null ;;
    ninja-build) command -v ninja >/dev/null ;;
    *) return 1 ;;
  esac
}

apt_get() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get -q -y -o DPkg::Lock::Timeout=300 "$@"
}

bring_packages() {
  local missing=() unknown=0 name by_hand
  for name in "$@"; do
    installed "$name" || missing+=("$name")
  done
  ((${#missing[@]})) || return 0

  begin "installing ${#missing[@]} system packages: ${missing[*]}"
  by_hand="apt-get install --no-install-recommends ${missing[*]}"
  if ! command -v apt-get >/dev/null; then
    fail "this system has no apt; install what these packages of Debian hold: ${missing[*]}"
  fi
  as_root=()
  if ((EUID != 0)); then
    if ! command -v sudo >/dev/null || { [[ ! -t 0 ]] && ! sudo -n true 2>/dev/null; }; then
      fail "system packages are missing, and this is neither root nor may it use sudo" \
        "run as root, then start this again: $by_hand"
    fi
    as_root=(sudo)
  fi
  for name in "${missing[@]}"; do
    apt-cache show "$name" >/dev/null 2>&1 || unknown=1
  done
  if ((unknown)); then
    quietly apt_get update || fail "apt-get update failed; is there a network?" \
      "without one, bring these packages by hand: ${missing[*]}"
  fi
  # Lists of packages that are days old name files that are gone.
  quietly apt_get install --no-install-recommends "${missing[@]}" ||
    { quietly apt_get update && quietly apt_get install --no-install-recommends "${missing[@]}"; } ||
    fail "apt-get could not install them; to see why: $by_hand"
}

# --- libtorch -------------------------------------------------------------------------------------

# Folder for downloads: the user's cache, or our own where there is no home.
find_cache() {
  local home=${HOME:-}
  if [[ -z ${XDG_CACHE_HOME:-} && -z $home ]]; then
    home=$(getent passwd "$(id -u)" | cut -d: -f6) || true
  fi
  cache=${XDG_CACHE_HOME:-${home:+$home/.cache}}
  cache=${cache:+$cache/muster}
  if [[ -z $cache ]] || ! mkdir -p "$cache" 2>/dev/null || [[ ! -w $cache ]]; then
    cache=$root/.deps/cache
    mkdir -p "$cache"
  fi
}

# A Python that has pip; the first in PATH may be a virtual environment without.
find_python() {
  for python in python3 /usr/bin/python3; do
    "$python" -m pip --version >/dev/null 2>&1 && return
  done
  fail "no python3 has pip; install python3-pip"
}

# The presets need CMake 3.25; Ubuntu 22.04 has an older one.
bring_cmake() {
  local here version
  here=$root/.deps/cmake/cmake/data/bin
  [[ ! -x $here/cmake ]] || PATH=$here:$PATH
  version=$(cmake --version | awk 'NR == 1 {print $3}')
  if [[ $(printf '3.25\n%s\n' "$version" | sort -V | head -n 1) != 3.25 ]]; then
    begin "installing a newer CMake than $version into .deps"
    quietly "$python" -m pip --no-input install --target "$root/.deps/cmake" 'cmake>=3.25,<4' ||
      fail "pip could not install cmake; bring CMake 3.25 or newer by hand"
    PATH=$here:$PATH
  fi
}

# Removes what a killed run left half done; its folders carry its process id.
clean() {
  local part pid
  for part in "$1"/.part.*; do
    pid=${part##*/.part.}
    [[ ! -d $part || -d /proc/${pid%%.*} ]] || rm -rf -- "$part"
  done
}

# fetch REQUIREMENT [PIP-ARGUMENT...]: wheels into the cache, where a file gets its name when it is
# whole; sets `fetched`. The tags are fixed, so that every Python gets the same files.
fetch() {
  local part file platforms=() minor
  begin "downloading $1"
  need_space "$cache" 1200
  part=$(mktemp -d "$cache/.part.$$.XXXX")
  temporary+=("$part")
  for minor in {5..39}; do
    platforms+=(--platform "manylinux_2_${minor}_$machine")
  done
  TMPDIR=$part PIP_REQUIRE_VIRTUALENV=0 PIP_DISABLE_PIP_VERSION_CHECK=1 \
    "$python" -m pip --no-input download --no-cache-dir --only-binary :all: \
    --implementation cp --python-version 3.11 --abi cp311 --abi abi3 --abi none \
    "${platforms[@]}" --platform "manylinux2014_$machine" --dest "$part" "$@" </dev/null ||
    no_network "pip could not download $1"
  fetched=()
  for file in "$part"/*.whl; do
    mv -f "$file" "$cache/"
    fetched+=("$cache/${file##*/}")
  done
  rm -rf "$part"
}

# Fails with what to bring by hand.
no_network() {
  local way_out="without one, name a libtorch that you have with --libtorch DIR" sha file
  while read -r sha file; do
    [[ -f $cache/$file ]] || way_out+=$'\n'"or put $file (sha256 $sha) into $cache"
  done < <(pinned)
  fail "$1; is there a network?" "$way_out"
}

# The lines of `pins` for this version and machine, without the version.
pinned() {
  local version sha file
  while read -r version sha file; do
    [[ $version != "$torch" || $file != *_"$machine".whl ]] || echo "$sha $file"
  done <<<"$pins"
}

# Appends to `wheels` a file of which the hash is known.
bring_pinned() {
  local sha=$1 file=$2 name version have
  if [[ ! -f $cache/$file ]]; then
    IFS=- read -r name version _ <<<"$file"
    fetch "$name==$version" --no-deps
    [[ -f $cache/$file ]] || fail "pip brought ${fetched[*]##*/} for $name==$version, not $file"
  fi
  step="checking the downloads"
  have=$(sha256sum "$cache/$file")
  have=${have%% *}
  if [[ $have != "$sha" ]]; then
    mv -f "$cache/$file" "$cache/$file.wrong"
    fail "$cache/$file has sha256 $have, not $sha; it is now called $file.wrong" \
      "run again to download it anew"
  fi
  wheels+=("$cache/$file")
}

# Appends to `wheels` the files of a torch version that is not pinned, and tells their hashes.
bring_unpinned() {
  local file requirement
  file=$(find "$cache" -maxdepth 1 -name "torch-$torch-*_$machine.whl" | sort | tail -n 1)
  if [[ -z $file ]]; then
    fetch "torch==$torch" --no-deps
    file=${fetched[0]}
  fi
  wheels+=("$file")
  while read -r requirement; do
    fetch "$requirement"
    for file in "${fetched[@]}"; do
      [[ $file != */nvidia_* ]] || wheels+=("$file")
    done
  done < <(cuda_requirements "${wheels[0]}")
  say "these are not pinned here:"
  sha256sum "${wheels[@]}"
}

need_space() {
  local have
  have=$(df -Pm "$1" | awk 'NR == 2 {print $4}')
  ((have >= $2)) || fail "$1 has ${have} MB left, $2 are needed"
}

# The requirements of a torch wheel that libtorch_cpu.so needs, for versions that have no pins.
cuda_requirements() {
  "$python" - "$1" <<'END'
import re, sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
metadata = next(n for n in wheel.namelist() if n.endswith(".dist-info/METADATA"))
for line in wheel.read(metadata).decode().splitlines():
    direct = re.match(r"Requires-Dist: (nvidia-cuda-(?:runtime|cupti)\S*==[^;\s]+)", line)
    bundle = re.match(r"Requires-Dist: cuda-toolkit\[.*\](==[^;\s]+)", line)
    if direct:
        print(direct[1])
    elif bundle:
        print("cuda-toolkit[cudart,cupti]" + bundle[1])
END
}

# unpack FOLDER WHEEL...: headers and libraries, laid out as in site-packages, so that the paths
# that libtorch_cpu.so has for the CUDA libraries are right.
unpack() {
  "$python" - "$@" <<'END'
import re, sys, zipfile
wanted = re.compile(r"torch/(include|lib)/|nvidia/.*/lib/lib(cudart|cupti)[^/]*$")
unwanted = re.compile(r"torch/lib/lib(torch_python|shm)")
for path in sys.argv[2:]:
    with zipfile.ZipFile(path) as wheel:
        for name in wheel.namelist():
            if wanted.match(name) and not unwanted.match(name):
                wheel.extract(name, sys.argv[1])
END
}

bring_libtorch() {
  local into=$root/.deps/libtorch-$torch wheels=() fetched=() part sha file
  mkdir -p "$root/.deps"
  if [[ ! -f $into/complete ]]; then
    step="checking the downloads"
    clean "$root/.deps"
    clean "$cache"
    while read -r sha file; do
      bring_pinned "$sha" "$file"
    done < <(pinned)
    ((${#wheels[@]})) || bring_unpinned
    begin "unpacking libtorch $torch into .deps"
    need_space "$root/.deps" 1500
    part=$(mktemp -d "$root/.deps/.part.$$.XXXX")
    temporary+=("$part")
    unpack "$part" "${wheels[@]}"
    printf '%s\n' "${wheels[@]##*/}" >"$part/complete"
    chmod 755 "$part"
    rm -rf "$into"
    mv -T "$part" "$into"
  fi
  # The build finds this one by itself, also when cmake is run by hand.
  ln -sfnT "${into##*/}" "$root/.deps/libtorch"
}

# A Python environment with the whole of torch, to compare muster with.
bring_peers() {
  bring_packages "${peer_packages[@]}"
  peers=$root/.deps/peers-$torch
  [[ -f $peers/complete ]] && return
  begin "installing Python's torch $torch with all that it requires into .deps"
  need_space "$root/.deps" 9000
  rm -rf "$peers"
  python3 -m venv "$peers"
  "$peers/bin/python" -m pip --no-input install --no-cache-dir --find-links "$cache" \
    "torch==$torch" numpy </dev/null ||
    fail "pip could not install torch $torch; is there a network?"
  touch "$peers/complete"
}

# --- configure, build, run ------------------------------------------------------------------------

# As many compilers as there are cores, and as fit into memory: a unit with torch.h takes 1.5 GB.
count_jobs() {
  local limit available by_memory
  available=$(awk '/^MemAvailable/ {print int($2 / 1024)}' /proc/meminfo)
  limit=$(cat /sys/fs/cgroup/memory.max 2>/dev/null || echo max)
  if [[ $limit =~ ^[0-9]+$ ]] && ((limit / 1048576 < available)); then
    available=$((limit / 1048576))
  fi
  jobs=$(nproc)
  by_memory=$((available / 1500))
  ((by_memory >= 1)) || by_memory=1
  ((jobs <= by_memory)) || jobs=$by_memory
}

configure() {
  begin "configuring $1"
  quietly cmake --preset "$1" -DMUSTER_TORCH_DIR="$libtorch" -DMUSTER_PEERS_PYTHON="${peers:+$peers/bin/python}"
}

# build PRESET [CMAKE-ARGUMENT...]
build() {
  begin "building $1 with $jobs jobs"
  cmake --build --preset "$1" -j "$jobs" "${@:2}" </dev/null
}

# Names the sources, the libtorch and the arguments of a test run.
fingerprint() {
  {
    find CMakeLists.txt CMakePresets.json cmake include src tests examples bench bootstrap.sh \
      -type f -print0 | sort -z | xargs -0 sha256sum
    printf '%s\n' "$torch" "$libtorch" "$@"
  } | sha256sum
}

# check PRESET [CTEST-ARGUMENT...]: builds and tests.
check() {
  configure "$1" && build "$1" || return
  begin "testing $1"
  ctest --preset "$1" -j "$(nproc)" "${@:2}" </dev/null
}

run_tests() {
  local selection=() passed=build/$preset/tests-passed failed=() mark
  [[ -z $label ]] || selection=(-L "^$label\$")
  selection+=("${arguments[@]}")
  mark=$(fingerprint "$preset" "${selection[@]}")
  if ((full)) && [[ $(cat "$passed" 2>/dev/null) == "$mark" ]]; then
    say "$preset: the tests passed on these sources before"
  else
    rm -f "$passed"
    if check "$preset" "${selection[@]}"; then
      printf '%s\n' "$mark" >"$passed"
    else
      failed+=("$step")
    fi
  fi
  if ((full)); then
    for name in asan tsan; do
      [[ $name == "$preset" ]] || check "$name" "${selection[@]}" || failed+=("$step")
    done
    if configure release && build release; then
      begin "testing under stress"
      ctest --preset stress </dev/null || failed+=("$step")
    else
      failed+=("$step")
    fi
  fi
  if ((${#failed[@]})); then
    step=$(printf '%s, ' "${failed[@]}")
    step=${step%, }
    exit 1
  fi
}

run_demo() {
  configure "$preset"
  build "$preset" --target "${demo[0]##*/}"
  begin "running the demo"
  if ((${#arguments[@]})); then
    demo=("${demo[0]}" "${arguments[@]}")
  fi
  "build/$preset/${demo[0]}" "${demo[@]:1}"
}

run_bench() {
  configure "$preset"
  build "$preset" --target bench_programs
  begin "running the benchmarks"
  python3 bench/run.py "build/$preset/bench" "${arguments[@]}" </dev/null
}

# --- command line ---------------------------------------------------------------------------------

command="" preset=release label="" libtorch="" peers="" full=0 with_peers=0 arguments=()
machine=$(uname -m)
while (($#)); do
  case $1 in
    demo | test | bench) command=$1 ;;
    --full) full=1 ;;
    --peers) with_peers=1 ;;
    --label | --libtorch | --torch | --preset)
      [[ -n ${2:-} ]] || fail "$1 needs a value; see --help"
      printf -v "${1#--}" '%s' "$2"
      shift
      ;;
    --help | -h)
      usage
      exit 0
      ;;
    --)
      shift
      arguments=("$@")
      break
      ;;
    *) fail "unknown argument $1; see --help" ;;
  esac
  shift
done
if [[ -z $command ]]; then
  usage >&2
  fail "which command: demo, test or bench?"
fi
if [[ -n $libtorch ]]; then
  libtorch=$(realpath -e -- "$libtorch" 2>/dev/null) || fail "--libtorch names no folder"
fi

bring_packages "${packages[@]}"
find_python
bring_cmake
if [[ -z $libtorch && ! ($preset == tsan && $full == 0) ]]; then
  find_cache
  bring_libtorch
fi
((!with_peers)) || bring_peers
count_jobs
case $command in
  demo) run_demo ;;
  test) run_tests ;;
  bench) run_bench ;;
esac

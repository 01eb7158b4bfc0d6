// A program for tests of launchers, without libtorch: `worker METHOD NPROCS MODE [ARG]`.
#include <muster/launch.hpp>
#include <iostream>
#include <cstdio>
#include <csignal>
#include <unistd.h>
int hello(muster::World& w, int n, const std::string& s) { std::printf("rank %d of %d pid %d ppid %d: %d %s\n", w.rank, w.size, getpid(), getppid(), n, s.c_str()); 
  w.store->set("k"+std::to_string(w.rank), "v"); for(int i=0;i<w.size;++i) w.store->get("k"+std::to_string(i), std::chrono::seconds(5)); w.store->add("n",1); return w.rank*10; }
void fail(muster::World& w, const std::string& mode) {
  if (w.rank == 1) { if (mode=="throw") throw std::runtime_error("boom"); if(mode=="42") throw 42; if(mode=="exit0") exit(0); if(mode=="_exit3") _exit(3); if(mode=="abort") abort(); if(mode=="segv") raise(SIGSEGV); if(mode=="kill") kill(getpid(),9); }
  w.store->get("never", std::chrono::seconds(100));
}
int main(int argc, char** argv) {
  muster::init(argc, argv);
  return muster::guard([&] {
    muster::SpawnLauncher l{muster::start_method_from(argv[1]), atoi(argv[2])};
    if (argc > 3) l.run(fail, argv[3]);
    else for (int r : l.run(hello, 7, "x")) std::printf("%d ", r);
    std::puts("");
  });
}

#include <muster/strategy/ddp.hpp>

#ifdef MUSTER_MUST_COMPILE
int train(muster::DDPStrategy& /*ddp*/, int steps) { return steps; }
#else
int train(int steps) { return steps; }
#endif

void test(muster::DDPStrategy& ddp) { ddp.launch(train, 1); }

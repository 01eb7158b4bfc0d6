#include <muster/strategy/ddp.hpp>

#ifdef MUSTER_MUST_COMPILE
int train(muster::Strategy& /*strategy*/) { return 0; }
#else
int train(muster::World& /*world*/) { return 0; }
#endif

void test(muster::DDPStrategy& ddp) { ddp.launch(train); }
